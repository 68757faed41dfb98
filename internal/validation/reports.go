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
	if r.requests++; len(e.Problems) > 0 {
		r.mismatches++
	}
	room := r.problems < maxPending && r.ofAccount[e.AccountID] < maxPendingOfAccount
	r.grow(e.AccountID, e.GatewayID, func(of *Report) { of.add(e, room) })
}

// giveBack adds a report that Take has returned and that could not be stored.
func (r *Reports) giveBack(o *Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.grow(o.AccountID, o.GatewayID, func(of *Report) { of.Merge(o) })
}

// grow lets add change the report of a gateway, and counts the problems that are new in it. The caller holds the lock.
func (r *Reports) grow(accountID, gatewayID string, add func(of *Report)) {
	if r.byGateway == nil {
		r.byGateway, r.ofAccount = map[string]*Report{}, map[string]int{}
	}
	of := r.byGateway[gatewayID]
	if of == nil {
		of = &Report{AccountID: accountID, GatewayID: gatewayID}
		r.byGateway[gatewayID] = of
	}
	before := len(of.Rows)
	add(of)
	r.problems += len(of.Rows) - before
	r.ofAccount[accountID] += len(of.Rows) - before
}

// Take returns what was counted since the last call.
func (r *Reports) Take() map[string]*Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.byGateway
	r.byGateway, r.ofAccount, r.problems = nil, nil, 0
	return taken
}
