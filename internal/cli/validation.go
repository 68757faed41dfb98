package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newValidation(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "validation GATEWAY_ID", Short: "Show what requests do otherwise than the OpenAPI document says",
		Long: `Show what the requests of the last 24 hours did otherwise than the OpenAPI document of a
gateway says, which is counted if its setting validate is report or enforce, and which
operations are unchecked. What is counted is exactly what enforce refuses.`,
		Example: "  keygate gateways update orders --validate report\n  keygate validation orders",
	}
	return shows(oneGateway(a), c, (*client.Client).Validation, validationFields)
}

// validationFields returns a line for the sum, and one for each problem and each operation that is unchecked.
func validationFields(v *client.Validation) []terminal.Field {
	verb := "would be refused"
	if v.Mode == client.ValidationModeEnforce {
		verb = "did not meet the document"
	}
	fields := []terminal.Field{
		{"MODE", string(v.Mode)},
		{"REQUESTS", fmt.Sprintf("%d of %d requests of %s %s", v.Refused, v.Requests, terminal.NumberOf(v.Keys, "key", "keys"), verb)},
	}
	if v.Skipped > 0 {
		fields = append(fields, terminal.Field{"SKIPPED", strconv.FormatInt(v.Skipped, 10)})
	}
	for i := range v.Data {
		d := &v.Data[i]
		fields = append(fields, terminal.Field{d.Method + " " + d.Path, fmt.Sprintf("%s %s (%s of %s; %s at %s)", strings.ReplaceAll(string(d.Place), "_", " "), d.Message,
			terminal.NumberOf(d.Requests, "request", "requests"), terminal.NumberOf(d.Keys, "key", "keys"), d.Rule, d.Pointer)})
	}
	for _, u := range v.Unchecked {
		fields = append(fields, terminal.Field{u.Method + " " + u.Path, "unchecked: " + u.Reason})
	}
	return fields
}
