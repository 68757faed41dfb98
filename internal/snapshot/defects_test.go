package snapshot_test

import (
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/defecttest"
)

// Guarantee: the tests find a bad record that blocks later changes, and a bad record that is skipped, so that
// the key stays as it was.
func TestDefectsOfApplyingAreFound(t *testing.T) { defecttest.Run(t) }
