package server_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/spf13/pflag"

	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/server"
)

// serveVariable makes the test binary a server with the flags in its arguments, for tests that kill one.
const serveVariable = "KEYGATE_TEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) != "" {
		if err := serve(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {} // until it is killed
	}
	os.Exit(postgrestest.Main(m))
}

// serve starts a server and prints a line when it is ready.
func serve(args []string) error {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	loader := config.Register(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	settings, err := loader.Load(os.LookupEnv)
	if err != nil {
		return err
	}
	if _, err = server.Start(context.Background(), server.Config{Settings: settings}); err == nil {
		fmt.Println("ready")
	}
	return err
}
