// Export writes the OpenAPI document of the management API to standard output:
// the 3.1 document that is kept as api/openapi.yaml, or with -downgrade the 3.0
// document that the client is generated from.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/keygate/keygate/internal/adminapi"
)

func main() {
	downgrade := flag.Bool("downgrade", false, "write the OpenAPI 3.0 document for the client's generator instead")
	flag.Parse()
	export := func() ([]byte, error) { return adminapi.YAML(adminapi.Document()) }
	if *downgrade {
		export = adminapi.ClientDocument().DowngradeYAML
	}
	content, err := export()
	if err == nil {
		_, err = os.Stdout.Write(content)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "export:", err)
		os.Exit(1)
	}
}
