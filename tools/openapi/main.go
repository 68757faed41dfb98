// Openapi generates the files that are derived from the management API; see make
// generate.
//
//	openapi document          write the OpenAPI 3.1 document, api/openapi.yaml
//	openapi client-document   write the OpenAPI 3.0 document that the client is generated from
//	openapi client-patch      write the client's patch of a gateway, client/patch.gen.go
//	openapi form              write what the dashboard's form of settings is made from, web/src/api/settings.gen.ts
//	openapi typescript        write the methods of the TypeScript client, clients/typescript/src/resources.gen.ts
//	openapi terraform         write what the resources of the Terraform provider are made from, terraform/internal/provider/schema.gen.json
//	openapi errors            write the reference of the error codes, docs/errors.md
//	openapi comments          copy the generated client from standard input, with better comments
//
// The output goes to standard output.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/keygate/keygate/internal/adminapi"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "document":
		return write(adminapi.YAML(adminapi.Document()))
	case len(args) == 1 && args[0] == "client-document":
		return write(adminapi.ClientDocument().DowngradeYAML())
	case len(args) == 1 && args[0] == "comments":
		content, err := io.ReadAll(os.Stdin)
		return write([]byte(rewriteComments(string(content))), err)
	case len(args) == 1 && args[0] == "client-patch":
		return write(clientPatch())
	case len(args) == 1 && args[0] == "form":
		return write(formGroups())
	case len(args) == 1 && args[0] == "typescript":
		return write(typeScript())
	case len(args) == 1 && args[0] == "terraform":
		return write(terraform())
	case len(args) == 1 && args[0] == "errors":
		return write([]byte(errorReference()), nil)
	default:
		return errors.New("usage: openapi document | client-document | client-patch | form | typescript | terraform | errors | comments")
	}
}

func write(content []byte, err error) error {
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(content)
	return err
}
