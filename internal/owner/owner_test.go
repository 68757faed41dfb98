package owner_test

import (
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/owner"
)

// Guarantee: an external ID is what a header can carry without a change.
func TestCheckExternalID(t *testing.T) {
	for _, id := range []string{"a", "customer 42", "cus_9s6XKzkNRiz8i3", strings.Repeat("a", 255)} {
		if err := owner.CheckExternalID("owner", id); err != nil {
			t.Errorf("%q: got %v, want no error", id, err)
		}
	}
	for _, id := range []string{"", " a", "a ", "a\n", "ü", strings.Repeat("a", 256)} {
		if err := owner.CheckExternalID("owner", id); err == nil {
			t.Errorf("%q: got no error, want one", id)
		}
	}
}
