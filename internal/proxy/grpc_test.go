package proxy_test

import (
	"net/url"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/proxy"
)

// Guarantee: each HTTP status of an error has its gRPC code (contract, 4.2, end).
func TestGRPCStatus(t *testing.T) {
	for status, want := range map[int]int{
		400: 13, 414: 13, 431: 13, 500: 13, 401: 16, 403: 7, 404: 12, 405: 12, 413: 8, 429: 8, 502: 14, 503: 14, 504: 4,
	} {
		if got := proxy.GRPCStatus(status); got != want {
			t.Errorf("status %d: got code %d, want %d", status, got, want)
		}
	}
}

// Guarantee: any text becomes a value of printable ASCII that decodes to the text.
func TestGRPCMessageRoundTrip(t *testing.T) {
	if got := proxy.GRPCMessage("100 % – a\n"); got != "100 %25 %E2%80%93 a%0A" {
		t.Errorf("got %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		value := proxy.GRPCMessage(text)
		for i := range len(value) {
			if value[i] < ' ' || value[i] > '~' {
				t.Fatalf("got %q, want printable ASCII", value)
			}
		}
		if got, err := url.PathUnescape(value); err != nil || got != text {
			t.Fatalf("%q decodes to %q, error %v; want %q", value, got, err, text)
		}
	})
}

// Guarantee: only content types that begin with application/grpc are gRPC.
func TestIsGRPC(t *testing.T) {
	for contentType, want := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "Application/GRPC;x": true, "application/json": false, "application/grp": false, "": false,
	} {
		if got := proxy.IsGRPC(contentType); got != want {
			t.Errorf("%q: got %v, want %v", contentType, got, want)
		}
	}
}
