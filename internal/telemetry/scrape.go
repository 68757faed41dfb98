package telemetry

import (
	"bytes"
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	// maxScrapes is the number of scrapes that may be under way. Further scrapes are 503.
	maxScrapes = 16
	// maxScrapeBytes is the largest size of a scrape.
	maxScrapeBytes = 32 << 20
	// sendTimeout is how long a scraper may take to read.
	sendTimeout = 30 * time.Second
)

// scrapes is a handler that calls another handler once for all requests that wait at the same time,
// and gives each the response. One response is rendered at a time, and rendering takes at most half
// of one core's time: after a rendering that took a second, the next waits for a second. Every
// request gets a response whose rendering began after its arrival.
type scrapes struct {
	render http.Handler
	slots  chan struct{} // one for each request under way
	turn   chan struct{} // held while rendering

	mu      sync.Mutex
	waiting map[scrapeKind]*scrape // not begun yet
	next    time.Time              // earliest begin of the next rendering; guarded by turn
	size    int                    // of the last one; guarded by turn
}

// scrapeKind is what the rendering of a request depends on.
type scrapeKind struct{ accept, encoding, query string }

// scrape is a rendering that requests share.
type scrape struct {
	done   chan struct{} // closed when the rest is set
	header http.Header
	status int
	body   bytes.Buffer
	full   bool // the body was cut off
}

func newScrapes(render http.Handler) *scrapes {
	return &scrapes{render: render, slots: make(chan struct{}, maxScrapes), turn: make(chan struct{}, 1), waiting: map[scrapeKind]*scrape{}}
}

// ServeHTTP implements http.Handler.
func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		w.Header().Set("Retry-After", "1")
		respond(w, http.StatusServiceUnavailable, "too many scrapes at the same time\n")
		return
	}
	one, first := s.join(r)
	if first {
		s.run(one, r)
	} else {
		select {
		case <-one.done:
		case <-r.Context().Done():
			return
		}
	}
	if one.full {
		respond(w, http.StatusInternalServerError, "the metrics have more than 32 MiB: reduce --metrics-max-series\n")
		return
	}
	// Not every writer has deadlines; a server's writer has.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTimeout))
	for name, values := range one.header {
		w.Header()[name] = values
	}
	w.WriteHeader(one.status)
	_, _ = w.Write(one.body.Bytes()) // an error means that the client hung up
}

// join returns the rendering that r shares, which has not begun yet. If first is true, the
// caller has to run it.
func (s *scrapes) join(r *http.Request) (one *scrape, first bool) {
	kind := kindOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if begun := s.waiting[kind]; begun != nil {
		return begun, false
	}
	one = &scrape{done: make(chan struct{}), header: http.Header{}, status: http.StatusOK}
	s.waiting[kind] = one
	return one, true
}

func kindOf(r *http.Request) scrapeKind {
	return scrapeKind{r.Header.Get("Accept"), r.Header.Get("Accept-Encoding"), r.URL.RawQuery}
}

// run runs a rendering when it is its turn. It does so even if the client of r hangs up, because
// others may wait for it.
func (s *scrapes) run(one *scrape, r *http.Request) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	<-time.After(time.Until(s.next))
	s.mu.Lock()
	delete(s.waiting, kindOf(r))
	s.mu.Unlock()
	defer close(one.done)
	began := time.Now()
	one.body.Grow(s.size + s.size/16)
	s.render.ServeHTTP(one, r)
	s.size = one.body.Len()
	s.next = time.Now().Add(time.Since(began))
}

// Header implements http.ResponseWriter.
func (s *scrape) Header() http.Header { return s.header }

// WriteHeader implements http.ResponseWriter.
func (s *scrape) WriteHeader(status int) { s.status = status }

// Write implements http.ResponseWriter.
func (s *scrape) Write(b []byte) (int, error) {
	if s.full = s.full || s.body.Len()+len(b) > maxScrapeBytes; s.full {
		return 0, errors.New("the metrics have too many bytes")
	}
	return s.body.Write(b)
}
