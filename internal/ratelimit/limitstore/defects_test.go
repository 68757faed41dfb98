package limitstore

import (
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/defecttest"
)

// Guarantee: the tests find a script that adds up the levels that nodes know of an emptied bucket.
func TestDefectsOfTheScriptAreFound(t *testing.T) { defecttest.Run(t) }
