package telemetry

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowRendering is a handler whose responses are numbered and take a second.
type slowRendering struct {
	mu      sync.Mutex
	current int
	most    int // at the same time
	total   int
}

func (s *slowRendering) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	s.current++
	s.most = max(s.most, s.current)
	s.total++
	text := strconv.Itoa(s.total)
	s.mu.Unlock()
	<-time.After(time.Second)
	_, _ = io.WriteString(w, text)
	s.mu.Lock()
	s.current--
	s.mu.Unlock()
}

// scrapeBegun begins a scrape, and returns a function that waits for the response.
func scrapeBegun(h http.Handler) func() *httptest.ResponseRecorder {
	done := make(chan *httptest.ResponseRecorder)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		done <- w
	}()
	synctest.Wait()
	return func() *httptest.ResponseRecorder { return <-done }
}

// Guarantee: scrapes that wait at the same time share one rendering, which begins after they
// arrived; only one is rendered at a time; and beyond 16 scrapes at the same time, a further scrape
// is 503.
func TestScrapesShareRendering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowRendering{}
		h := newScrapes(slow)
		begun := []func() *httptest.ResponseRecorder{scrapeBegun(h)}
		for range maxScrapes - 1 {
			begun = append(begun, scrapeBegun(h))
		}
		if got := scrapeBegun(h)().Code; got != http.StatusServiceUnavailable {
			t.Errorf("one too many: got status %d, want 503", got)
		}
		for i, end := range begun {
			want := "2" // the first one had begun when they arrived
			if i == 0 {
				want = "1"
			}
			if got := end(); got.Code != http.StatusOK || got.Body.String() != want {
				t.Errorf("scrape %d: got %d and rendering %s, want 200 and %s", i, got.Code, got.Body, want)
			}
		}
		if slow.total != 2 || slow.most != 1 {
			t.Errorf("got %d renderings, %d at a time, want 2, one at a time", slow.total, slow.most)
		}
	})
}

// Guarantee: a scrape that comes after another one, even directly, gets a rendering of its own, and
// rendering takes at most half of the time.
func TestScrapeIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, began := newScrapes(&slowRendering{}), time.Now()
		for i := range 10 {
			if got, want := scrapeBegun(h)().Body.String(), strconv.Itoa(i+1); got != want {
				t.Errorf("got rendering %s, want %s", got, want)
			}
		}
		if took := time.Since(began); took != 19*time.Second {
			t.Errorf("ten renderings of a second took %s, want 19s", took)
		}
	})
}

// Guarantee: a response of more than 32 MiB is not sent, and not kept in memory.
func TestScrapeSizeIsBounded(t *testing.T) {
	wrote := 0
	h := newScrapes(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for part := strings.Repeat("x", 1<<20); wrote < 100; wrote++ {
			if _, err := io.WriteString(w, part); err != nil {
				return
			}
		}
	}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusInternalServerError || wrote > maxScrapeBytes>>20 {
		t.Errorf("got status %d after %d MiB, want 500 after 32 MiB", w.Code, wrote)
	}
}

// deadlineWriter remembers the write deadline that a handler sets.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (w *deadlineWriter) SetWriteDeadline(at time.Time) error {
	w.deadline = at
	return nil
}

// Guarantee: a scraper that does not read holds its slot for 30 s at most, counted from the end of
// the rendering.
func TestStalledScraperIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
		newScrapes(&slowRendering{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		if got := time.Until(w.deadline); got != sendTimeout {
			t.Errorf("got a write deadline in %s, want %s", got, sendTimeout)
		}
	})
}
