package nethttp

import "net/http"

// notInTrailer reports whether a field means nothing good behind a body: fields
// of framing, routing and authentication, and ours (contract, 4.4).
func notInTrailer(name string) bool {
	switch name {
	case "Content-Length", "Content-Encoding", "Content-Range", "Content-Type",
		"Host", "Expect", "Max-Forwards", "Via", "Location",
		"Authorization", "Www-Authenticate", "Authentication-Info", "Proxy-Authentication-Info", "Cookie", "Set-Cookie":
		return true
	}
	return hopByHop(name) || notForUpstream(name) || forwarded(name) || ownAnswerName(name)
}

// announceTrailers tells the client which trailers will follow, as far as the
// upstream has told.
func announceTrailers(h, trailers http.Header) {
	for name := range trailers {
		if _, inHead := h[name]; !inHead && !notInTrailer(name) {
			h.Add("Trailer", name)
		}
	}
}

// sendTrailers puts the upstream's trailers where net/http looks for those that
// were not announced; it merges the two kinds.
func sendTrailers(h, trailers http.Header) {
	for name, values := range trailers {
		if !notInTrailer(name) {
			h[http.TrailerPrefix+name] = values
		}
	}
}
