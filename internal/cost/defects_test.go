package cost_test

import (
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/defecttest"
)

// Guarantee: the tests find the mistakes that others shipped, and those that a reader of pieces invites.
func TestDefectsOfReadingAreFound(t *testing.T) { defecttest.Run(t) }
