package adminapi

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/fairslots"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// What the calls of one account, and of all accounts, may hold in memory at once (contract,
// section 5; docs/limits.md). A document is in memory only while its call has a slot for it:
// from before its body is read until the response is written.
const (
	documentsPerAccount = 2
	documentsInAll      = 8
	documentsWaiting    = 16 // of one account; no waiting call has its body in memory
	documentWait        = 10 * time.Second

	searchesPerAccount = 1
	searchesInAll      = 4  // the store has connections for so many
	searchesWaiting    = 16 // of one account
	searchWait         = 10 * time.Second
	searchTime         = 10 * time.Second // of one search

	// The levels of a gateway's limits are found by reading all keys and routes in memory.
	levelsPerAccount = 1
	levelsInAll      = 2
	levelsWaiting    = 16 // of one account
	levelsWait       = 10 * time.Second

	triesPerAccount = 1
	triesInAll      = 4

	// Connections that only find out whether an upstream can be reached.
	reachesPerAccount = 4
	reachesInAll      = 16

	callsPerAccount = 64
	callsWaiting    = 64 // of one account
	callWait        = 2 * time.Second

	// retryAfter is the Retry-After of a call that found no slot, in seconds.
	retryAfter = 2
)

// A client keeps its slot for a document only while it is fast enough: it has the time paceGrace,
// and one more second for each paceBytes that it sends or receives.
const (
	paceGrace = 10 * time.Second
	paceBytes = 128 << 10
)

// bounds holds the slots of all accounts.
type bounds struct {
	documents *fairslots.Slots
	searches  *fairslots.Slots
	levels    *fairslots.Slots
	tries     *fairslots.Slots // none waits
	reaches   *fairslots.Slots // none waits
	drains    *fairslots.Slots // none waits
	calls     *fairslots.Slots
	memory    memory
}

func newBounds() *bounds {
	return &bounds{
		documents: fairslots.New(fairslots.Config{PerAccount: documentsPerAccount, All: documentsInAll, Waiting: documentsWaiting, Wait: documentWait}),
		searches:  fairslots.New(fairslots.Config{PerAccount: searchesPerAccount, All: searchesInAll, Waiting: searchesWaiting, Wait: searchWait}),
		levels:    fairslots.New(fairslots.Config{PerAccount: levelsPerAccount, All: levelsInAll, Waiting: levelsWaiting, Wait: levelsWait}),
		tries:     fairslots.New(fairslots.Config{PerAccount: triesPerAccount, All: triesInAll}),
		reaches:   fairslots.New(fairslots.Config{PerAccount: reachesPerAccount, All: reachesInAll}),
		drains:    fairslots.New(fairslots.Config{PerAccount: drainsPerAccount, All: drainsInAll}),
		calls:     fairslots.New(fairslots.Config{PerAccount: callsPerAccount, Waiting: callsWaiting, Wait: callWait}),
		memory:    memory{free: debug.FreeOSMemory},
	}
}

// held is what a call has to give back at its end. A nil function means nothing.
type held struct {
	call, document func()
	bytes          int // of the document, in the request or the response
}

// takeCallSlot takes a slot among the calls of the account that run at once. It passes a
// call that needs no key.
func (c *call) takeCallSlot() (err error) {
	if c.op.public {
		return nil
	}
	c.held.call, err = c.take(c.api.bounds.calls, callsPerAccount,
		"too many calls of this account are running: at most %d run at once; retry after the seconds in the Retry-After header")
	return err
}

// takeDocumentSlot takes a slot for reading a document, unless the call has one.
func (c *call) takeDocumentSlot() (err error) {
	if c.held.document != nil {
		return nil
	}
	c.held.document, err = c.take(c.api.bounds.documents, documentsPerAccount,
		"too many documents are being read: at most %d of an account are read at once, and this one waited for its turn in vain; retry after the seconds in the Retry-After header")
	return err
}

// TakeDocument takes a slot for a document that no call reads, such as a file of a repository, and
// waits for its turn as calls do. The caller must call release with the size of the document in
// bytes. The error is fairslots.ErrNone, or ctx.Err().
func (a *API) TakeDocument(ctx context.Context, accountID string) (release func(bytes int), err error) {
	giveBack, err := a.bounds.documents.Take(ctx, accountID)
	if err != nil {
		return nil, err
	}
	return func(bytes int) {
		giveBack()
		a.bounds.memory.used(bytes)
	}, nil
}

// searching runs read while the call has a slot among the searches, with a context that ends after
// searchTime. A search is a read whose time grows with what the account has stored, or with the time
// that a report covers.
func searching[T any](c *call, read func() (T, error)) (T, error) {
	release, err := c.take(c.api.bounds.searches, searchesPerAccount,
		"too many searches and reports of this account are running: %d runs at a time, and this one waited for its turn in vain; retry after the seconds in the Retry-After header")
	if err != nil {
		var none T
		return none, err
	}
	defer release()
	whole := c.ctx
	defer func() { c.ctx = whole }()
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithTimeout(whole, searchTime)
	defer cancel()
	found, err := read()
	if errors.Is(err, context.DeadlineExceeded) && whole.Err() == nil {
		return found, fault.New(fault.Unavailable, "the search or report was stopped after %s: ask for less, with more filters, a longer q or a shorter time", searchTime)
	}
	return found, err
}

// take takes one of the account's slots. format describes a refusal; its argument is limit,
// the number of these slots.
func (c *call) take(slots *fairslots.Slots, limit int64, format string) (release func(), err error) {
	release, err = slots.Take(c.ctx, c.principal.Account.ID)
	if !errors.Is(err, fairslots.ErrNone) {
		return release, err
	}
	resetAt := c.api.cfg.Now().Add(retryAfter*time.Second + time.Second - 1).Unix()
	refusal := fault.New(fault.RateLimitExceeded, format, limit)
	refusal.Limit = &fault.Limit{Limit: limit, ResetAt: resetAt, Scope: ratelimit.AccountScope.String()}
	c.setRefusalHeaders(refusal.Limit, retryAfter)
	return nil, refusal
}

// setRefusalHeaders sets the headers of a call that l refuses. retryAfter is in seconds.
func (c *call) setRefusalHeaders(l *fault.Limit, retryAfter int64) {
	for name, value := range map[string]int64{"X-RateLimit-Limit": l.Limit, "X-RateLimit-Remaining": 0, "X-RateLimit-Reset": l.ResetAt} {
		c.header[name] = []string{strconv.FormatInt(value, 10)} // not Set: see setLimitHeaders
	}
	c.header.Set("Retry-After", strconv.FormatInt(retryAfter, 10))
}

// setRefusal sets the headers if an operation refused the call because of a limit of the account.
// Otherwise it does nothing.
func (c *call) setRefusal(err error) {
	var refusal *fault.Error
	if !errors.As(err, &refusal) || refusal.Limit == nil || c.header.Get("Retry-After") != "" {
		return
	}
	c.setRefusalHeaders(refusal.Limit, max(1, refusal.Limit.ResetAt-c.api.cfg.Now().Unix()))
}

// letGo gives back what the call holds.
func (c *call) letGo() {
	if c.held.document != nil {
		c.held.document()
		c.api.bounds.memory.used(c.held.bytes)
	}
	if c.held.call != nil {
		c.held.call()
	}
}

// pacedBody is the body of a call that has a slot for a document. A read fails when the client is
// too slow for it.
type pacedBody struct {
	call  *call
	body  io.Reader
	start time.Time
}

func (b *pacedBody) Read(p []byte) (int, error) {
	if b.start.IsZero() {
		b.start = time.Now()
	}
	// A connection without deadlines, as in a test, has no pace to keep.
	_ = b.call.conn.SetReadDeadline(b.start.Add(pace(b.call.held.bytes)))
	n, err := b.body.Read(p)
	b.call.held.bytes += n
	return n, err
}

// keepPace sets how long the client may take to receive a response of n bytes, if the call
// has a slot for a document.
func (c *call) keepPace(n int) {
	if c.held.document == nil {
		return
	}
	c.held.bytes += n
	_ = c.conn.SetWriteDeadline(time.Now().Add(pace(n)))
}

// pace returns how long a client may take for n bytes.
func pace(n int) time.Duration {
	return paceGrace + time.Duration(n)*time.Second/paceBytes
}

// When memory is given back to the operating system: after documents of at least returnAbove
// bytes together, once they have been dealt with, and seldom, because it takes a collection of
// all garbage.
const (
	returnAbove    = 4 << 20
	returnAfter    = time.Second
	returnInterval = 10 * time.Second
)

// memory gives memory back that documents took. The garbage collector alone would keep it
// for minutes: it runs when the heap has grown, and after a large document nothing grows.
type memory struct {
	free func()

	mu     sync.Mutex
	bytes  int       // of the documents since the last return
	last   time.Time // of the last return
	timing bool      // the next return is due
}

// used takes note of a document of n bytes that is no longer in use.
func (m *memory) used(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes += n
	if m.bytes < returnAbove || m.timing {
		return
	}
	m.timing = true
	time.AfterFunc(max(returnAfter, returnInterval-time.Since(m.last)), m.giveBack)
}

func (m *memory) giveBack() {
	m.mu.Lock()
	m.bytes, m.last, m.timing = 0, time.Now(), false
	m.mu.Unlock()
	m.free()
}
