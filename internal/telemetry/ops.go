package telemetry

import (
	"io"
	"net/http"
	"net/http/pprof"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Phase is where a server stands in its life.
type Phase int32

// The phases. A server goes through them in this order.
const (
	Starting Phase = iota
	Ready          // every listener serves and the configuration is loaded
	Draining       // a shutdown has begun
)

// Readiness tells in which phase a server is. The zero value is Starting. It is
// safe for concurrent use.
type Readiness struct{ phase atomic.Int32 }

// Set moves the server into phase p.
func (r *Readiness) Set(p Phase) { r.phase.Store(int32(p)) }

// Phase returns the phase.
func (r *Readiness) Phase() Phase { return Phase(r.phase.Load()) }

// OpsHandler answers /livez, /readyz and /metrics, and, if withPprof,
// /debug/pprof.
func OpsHandler(r *Readiness, m *Metrics, withPprof bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "alive\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch r.Phase() {
		case Ready:
			answer(w, http.StatusOK, "ready\n")
		case Draining:
			answer(w, http.StatusServiceUnavailable, "shutting down\n")
		default:
			answer(w, http.StatusServiceUnavailable, "starting\n")
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry}))
	if withPprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // a client that left needs no answer
}
