package balance

import (
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/defecttest"
)

// Guarantee: the tests find the defects that other balancers have, and such as would break the rules of ejections.
func TestDefectsAreFound(t *testing.T) { defecttest.Run(t) }
