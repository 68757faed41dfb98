package validation

import (
	"sync"
	"time"

	"github.com/keygate/keygate/internal/validate"
)

// Entry is one request that was held against its document, or was to be.
type Entry struct {
	AccountID, GatewayID string
	Method, Path         string // of the route
	KeyID                string
	At                   time.Time
	Problems             []validate.Problem
	Checked              bool // otherwise its operation is unchecked, or there was no room for its body
}

// maxPending is the number of problems, in the sense of Report, that are counted before they are stored, in all and for one account.
const (
	maxPending          = 20_000
	maxPendingOfAccount = 2000
)

// Reports counts what requests do otherwise than their documents say, until Take. It is safe for concurrent use.
type Reports struct {
	mu        sync.Mutex
	byGateway map[string]*Report
	problems  int
	ofAccount map[string]int

	requests, mismatches int64
}

// Requests returns the number of requests that were held against a document, and Mismatches of those that did not meet it.
func (r *Reports) Requests() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// Mismatches returns the number of requests that did not meet their document.
func (r *Reports) Mismatches() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mismatches
}

// Add counts a request.
func (r *Reports) Add(e *Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byGateway == nil {
		r.byGateway, r.ofAccount = map[string]*Report{}, map[string]int{}
	}
	if r.requests++; len(e.Problems) > 0 {
		r.mismatches++
	}
	of := r.byGateway[e.GatewayID]
	if of == nil {
		of = &Report{AccountID: e.AccountID, GatewayID: e.GatewayID}
		r.byGateway[e.GatewayID] = of
	}
	before := len(of.Rows)
	of.add(e, r.problems < maxPending && r.ofAccount[e.AccountID] < maxPendingOfAccount)
	r.problems += len(of.Rows) - before
	r.ofAccount[e.AccountID] += len(of.Rows) - before
}

// giveBack adds a report that Take has returned and that could not be stored.
func (r *Reports) giveBack(o *Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byGateway == nil {
		r.byGateway, r.ofAccount = map[string]*Report{}, map[string]int{}
	}
	of := r.byGateway[o.GatewayID]
	if of == nil {
		of = &Report{AccountID: o.AccountID, GatewayID: o.GatewayID}
		r.byGateway[o.GatewayID] = of
	}
	before := len(of.Rows)
	of.Merge(o)
	r.problems += len(of.Rows) - before
	r.ofAccount[o.AccountID] += len(of.Rows) - before
}

// Take returns what was counted since the last call.
func (r *Reports) Take() map[string]*Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.byGateway
	r.byGateway, r.ofAccount, r.problems = nil, nil, 0
	return taken
}
