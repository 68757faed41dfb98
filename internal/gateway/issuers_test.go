package gateway

import (
	"fmt"
	"testing"

	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: a gateway names at most 16 issuers, each once.
func TestIssuersOfAGateway(t *testing.T) {
	many := make([]string, MaxIssuers+1)
	for i := range many {
		many[i] = fmt.Sprint("issuer-", i)
	}
	for _, c := range []struct {
		list  []string
		field string // "" if the list is valid
	}{
		{nil, ""}, {many[:MaxIssuers], ""}, {many, "issuers"}, {[]string{"a", "b", "a"}, "issuers[2]"}, {[]string{""}, "issuers[0]"},
	} {
		err := CheckIssuers(c.list)
		if problems := fault.ProblemsOf(err); (len(problems) > 0) != (c.field != "") || len(problems) > 0 && problems[0].Field != c.field {
			t.Errorf("%d issuers: got %v, want a problem of %q", len(c.list), err, c.field)
		}
	}
}
