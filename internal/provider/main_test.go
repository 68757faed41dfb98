package provider_test

import (
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
