package upstream_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/upstream"
)

// BenchmarkSend measures requests that follow each other over one kept connection of a
// Transport, including the upstream.
func BenchmarkSend(b *testing.B) {
	for _, scheme := range []string{"http", "https"} {
		b.Run(scheme, func(b *testing.B) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "ok")
			}))
			o := upstream.Origin{Scheme: scheme, Host: s.Listener.Addr().String()}
			if scheme == "https" {
				s.StartTLS()
				o.CA = pemOf(s.Certificate())
			} else {
				s.Start()
			}
			defer s.Close()
			pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New()})
			if err != nil {
				b.Fatal(err)
			}
			defer pools.Close()
			pool, err := pools.Get(o)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				resp, err := pool.Send(b.Context(), &upstream.Exchange{Request: request("GET", scheme+"://"+o.Host, "/"), HeadTimeout: time.Minute})
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Close()
			}
		})
	}
}
