package postgres

import (
	"testing"

	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/store/storetest"
)

// Guarantee: the PostgreSQL store passes the conformance suite.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Engine { return fresh(t) })
}
