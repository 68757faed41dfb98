package telemetry

import (
	"io"
	"net/http"
	"net/http/pprof"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Phase is a phase of a server's life.
type Phase int32

// The phases, in their order.
const (
	Starting Phase = iota
	Ready          // all listeners serve and the configuration is loaded
	Draining       // a shutdown has begun
)

// Readiness holds the phase of a server. The zero value is in phase Starting. It is safe
// for concurrent use.
type Readiness struct {
	phase    atomic.Int32
	degraded atomic.Pointer[func() string]
	unready  atomic.Pointer[func() string]
	starting atomic.Pointer[string]
}

// Set sets the phase.
func (r *Readiness) Set(p Phase) { r.phase.Store(int32(p)) }

// Phase returns the phase.
func (r *Readiness) Phase() Phase { return Phase(r.phase.Load()) }

// SetDegraded sets a function that returns what is wrong without stopping traffic, or "".
func (r *Readiness) SetDegraded(f func() (reason string)) { r.degraded.Store(&f) }

// Degraded returns what is wrong without stopping traffic, or "".
func (r *Readiness) Degraded() string {
	if f := r.degraded.Load(); f != nil {
		return (*f)()
	}
	return ""
}

// SetStarting sets what a server in phase Starting waits for, or "".
func (r *Readiness) SetStarting(reason string) { r.starting.Store(&reason) }

// SetUnready sets a function that returns why a server in phase Ready must not get requests at this moment, or "".
func (r *Readiness) SetUnready(f func() (reason string)) { r.unready.Store(&f) }

// Unready returns why a server in phase Ready must not get requests at this moment, or "".
func (r *Readiness) Unready() string {
	if f := r.unready.Load(); f != nil {
		return (*f)()
	}
	return ""
}

// OpsHandler returns the handler of /livez, /readyz and /metrics, and of /debug/pprof if
// withPprof is true.
func OpsHandler(r *Readiness, m *Metrics, withPprof bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, http.StatusOK, "alive\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch r.Phase() {
		case Ready:
			if reason := r.Unready(); reason != "" {
				respond(w, http.StatusServiceUnavailable, "not ready: "+reason+"\n")
				return
			}
			text := "ready\n"
			if reason := r.Degraded(); reason != "" {
				text += "degraded: " + reason + "\n"
			}
			respond(w, http.StatusOK, text)
		case Draining:
			respond(w, http.StatusServiceUnavailable, "shutting down\n")
		default:
			text := "starting\n"
			if reason := r.starting.Load(); reason != nil && *reason != "" {
				text = "starting: " + *reason + "\n"
			}
			respond(w, http.StatusServiceUnavailable, text)
		}
	})
	mux.Handle("GET /metrics", newScrapes(promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})))
	if withPprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

func respond(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // an error means that the client hung up
}
