package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// Guarantee: a push for which the server has no slot is tried again after its Retry-After, with a
// line that says so, five times in all. Any other error ends it at once.
func TestPushesWaitForTheirTurn(t *testing.T) {
	busy := &client.Error{Status: 429, Message: "too many documents are being read", RetryAfter: 2 * time.Second}
	for name, c := range map[string]struct {
		results []error
		tries   int
		waited  time.Duration
	}{
		"a place at once":   {[]error{nil}, 1, 0},
		"a place later":     {[]error{busy, busy, nil}, 3, 4 * time.Second},
		"no place":          {[]error{busy, busy, busy, busy, busy}, 5, 8 * time.Second},
		"a mistake":         {[]error{&client.Error{Status: 422}}, 1, 0},
		"no Retry-After":    {[]error{&client.Error{Status: 429}}, 1, 0},
		"a long wait":       {[]error{&client.Error{Status: 429, RetryAfter: time.Hour}}, 1, 0},
		"another try fails": {[]error{busy, errors.New("unreachable")}, 2, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said bytes.Buffer
				a := &app{Console: &terminal.Console{Err: &said}}
				tries, start := 0, time.Now()
				_, err := inTurn(t.Context(), a, func() (*client.Push, error) {
					tries++
					return &client.Push{}, c.results[tries-1]
				})
				if tries != c.tries || time.Since(start) != c.waited || !errors.Is(err, c.results[len(c.results)-1]) {
					t.Errorf("got %d tries in %s and %v, want %d in %s and %v", tries, time.Since(start), err, c.tries, c.waited, c.results[len(c.results)-1])
				}
				if lines := strings.Count(said.String(), "trying again in 2s (too many documents are being read)"); lines != int(c.waited/(2*time.Second)) {
					t.Errorf("got output %q, want a line for each wait", said.String())
				}
			})
		})
	}
}
