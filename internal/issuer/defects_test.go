package issuer

import (
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/defecttest"
)

// Guarantee: the tests find the defects that others shipped, and those that the checks invite.
func TestDefectsAreFound(t *testing.T) { defecttest.Run(t) }
