package lease

import (
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/defecttest"
)

// Guarantee: the simulation finds defects of leases that others shipped, or that were found by a model.
func TestSimulationFindsDefects(t *testing.T) { defecttest.Run(t) }
