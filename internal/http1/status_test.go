package http1

import (
	"net/http"
	"testing"
)

// Guarantee: reason phrases are the same as in net/http.
func TestStatusText(t *testing.T) {
	for status := -1; status < 1000; status++ {
		if got, want := StatusText(status), http.StatusText(status); got != want {
			t.Errorf("%d: got %q, want %q", status, got, want)
		}
	}
}
