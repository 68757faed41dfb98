package canary

import (
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/defecttest"
)

// Guarantee: the tests find rules that abort good canaries.
func TestDefectsAreFound(t *testing.T) { defecttest.Run(t) }
