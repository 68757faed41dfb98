package snapshot

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/gateway"
)

// Handling is the compiled gateway.Handling of routes (edge.md, section 2). It is immutable, and shared by routes with equal ones.
type Handling struct {
	// Strip is the number of segments that are cut from the front of the path that the upstream gets.
	Strip int
	// Response is the response of the gateway itself, in place of forwarding; nil for none.
	Response *Response
	// RequestHeaders and ResponseHeaders are the headers that are set and removed, beside those of the gateway; nil for none.
	RequestHeaders, ResponseHeaders *HeaderRules

	validate  gateway.ValidateMode // "" for that of the gateway
	addresses *addrlist.List       // that may use the route; nil for all
}

// Response is the response with which a route responds to its requests.
type Response struct {
	Status int
	// ContentType is the media type of the body; "" for none.
	ContentType string
	// Body is nil if the status allows no body.
	Body    []byte
	Headers []Header
	// Redirect is set for a redirect, whose Location is made for each request.
	Redirect *gateway.Redirect
}

func compileHandling(h *gateway.Handling) *Handling {
	c := &Handling{Strip: strings.Count(h.StripPrefix, "/"), addresses: addrlist.CompileStrict(h.Addresses())}
	c.validate = h.Validate.Shared()
	c.RequestHeaders, c.ResponseHeaders = CompileHeaderRules(h.RequestHeaders), CompileHeaderRules(h.ResponseHeaders)
	switch {
	case h.Redirect != nil:
		to := *h.Redirect
		to.To = strings.Clone(to.To)
		c.Response = &Response{Status: int(to.Status), Body: []byte{}, Redirect: &to}
	case h.Respond != nil:
		r := h.Respond
		c.Response = &Response{Status: int(r.Status), ContentType: strings.Clone(r.ContentType), Body: []byte(r.Body), Headers: compileHeaders(r.Headers)}
		if r.Status == 204 || r.Status == 304 {
			c.Response.Body = nil
		}
	}
	return c
}

// compileHeaders returns headers by name.
func compileHeaders(headers map[string]string) []Header {
	var list []Header
	for name, value := range headers {
		list = append(list, Header{Name: strings.Clone(name), Value: strings.Clone(value)})
	}
	slices.SortFunc(list, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// sharedHandlings has the compiled form of equal handlings once, as long as a route has them. It is safe for concurrent use.
type sharedHandlings struct {
	mu    sync.Mutex
	known map[string]weak.Pointer[Handling] // by the handling as JSON

	// What was asked for last: routes of one page that have equal handlings share them.
	last   *gateway.Handling
	lastly *Handling
}

// of returns the compiled form of h, which must not change any more; nil for nil.
func (s *sharedHandlings) of(h *gateway.Handling) *Handling {
	if h == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == h {
		return s.lastly
	}
	text := string(h.AppendJSON(nil))
	c := s.known[text].Value()
	if c == nil {
		if s.known == nil {
			s.known = map[string]weak.Pointer[Handling]{}
		}
		c = compileHandling(h)
		s.known[text] = weak.Make(c)
		runtime.AddCleanup(c, s.drop, text)
	}
	s.last, s.lastly = h, c
	return c
}

// forget lets go of what was asked for last.
func (s *sharedHandlings) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.lastly = nil, nil
}

// drop removes a handling that no route has any more, unless there is a newer one.
func (s *sharedHandlings) drop(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[text].Value() == nil {
		delete(s.known, text)
	}
}
