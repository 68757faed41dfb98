package calendar

import (
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/defecttest"
)

// Guarantee: the tests find windows that others got wrong.
func TestDefectsOfWindowsAreFound(t *testing.T) { defecttest.Run(t) }
