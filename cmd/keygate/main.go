// Command keygate is the server and its command line.
package main

import (
	"context"
	"os"

	"github.com/keygate/keygate/internal/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), cli.OS(), os.Args[1:]))
}
