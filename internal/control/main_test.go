package control_test

import (
	"os"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }
