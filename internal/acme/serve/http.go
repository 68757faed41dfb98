package serve

import (
	"net/http"
	"strings"
)

// challengePath is where a CA asks (RFC 8555, section 8.3).
const challengePath = "/.well-known/acme-challenge/"

// Handler returns what is served at port 80: validations by HTTP-01, a redirect to https for the hostnames that known returns, and a
// 404 for everything else. known gets the value of Host, and returns the hostname of a gateway, or "".
func (s *Set) Handler(known func(host string) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hostname := known(r.Host)
		token, validates := strings.CutPrefix(r.URL.Path, challengePath)
		switch {
		case hostname == "" || !strings.HasPrefix(r.RequestURI, "/"):
			refuse(w)
		case !validates:
			w.Header().Set("Location", "https://"+hostname+r.RequestURI)
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusPermanentRedirect)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			refuse(w)
		default:
			text := s.KeyAuthorization(hostname, token)
			if text == "" {
				refuse(w)
				return
			}
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Cache-Control", "no-store")
			_, _ = w.Write([]byte(text)) // the CA asks again
		}
	})
}

// refuse responds that there is nothing.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	w.WriteHeader(http.StatusNotFound)
}
