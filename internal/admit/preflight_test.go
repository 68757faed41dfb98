package admit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
)

// Guarantee: the head of a preflight's response has at most 8 KiB, even with the largest cors that a gateway may have:
// the fields that the verdict adds leave a KiB for the rest.
func TestHeadOfAPreflight(t *testing.T) {
	h := newHarness(t)
	cors := gateway.CORS{Origins: []string{"https://" + strings.Repeat("a", 247)}, Methods: []string{"GET"}, MaxAge: 86400}
	for i := 0; ; i++ {
		cors.Headers = append(cors.Headers, fmt.Sprintf("x-%03d-%s", i, strings.Repeat("y", 100)))
		if cors.Validate() != nil {
			cors.Headers = cors.Headers[:i]
			break
		}
	}
	h.gateway(func(g *gateway.Gateway) { g.CORS = &cors })
	v := h.decide(Request{Method: "OPTIONS", Target: "/", Origin: cors.Origins[0], PreflightMethod: "GET"})
	if n := len(v.AppendFields(nil)); v.Action != Preflight || n < 6<<10 || n > 7<<10 {
		t.Errorf("got action %d with %d bytes of %d headers, want a preflight with 6 to 7 KiB", v.Action, n, len(cors.Headers))
	}
}
