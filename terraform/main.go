// Terraform-provider-keygate is the provider of Keygate for OpenTofu and Terraform.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/keygate/keygate/terraform/internal/provider"
)

// version is set by the linker in a release.
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "wait for a debugger, and print how to reach the provider")
	flag.Parse()
	err := providerserver.Serve(context.Background(), provider.New(version), providerserver.ServeOpts{
		Address: "registry.opentofu.org/keygate/keygate", Debug: *debug, ProtocolVersion: 6,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "terraform-provider-keygate:", err)
		os.Exit(1)
	}
}
