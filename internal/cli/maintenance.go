package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/gateway"
)

// newGatewaysMaintenance returns the commands that turn the maintenance of a gateway on and off.
func newGatewaysMaintenance(a *app) *cobra.Command {
	group := newGroup("maintenance", "Let a gateway respond to every request with a 503, and end that")
	var in client.MaintenanceInput
	var message string
	var allow []string
	on := &cobra.Command{
		Use: "on GATEWAY_ID", Short: "Respond to every request with a 503, except for those from some addresses",
		Long: "Respond to every request with a 503, whatever its key, except for those from the networks of --allow.\n" +
			"It is in force on every node when the command ends. Given again, it replaces message and networks.",
		Example: "  keygate gateways maintenance on orders --message 'back at 14:00 UTC' --allow 203.0.113.0/24",
		PreRun: func(*cobra.Command, []string) {
			in = client.MaintenanceInput{Message: given(message)}
			if len(allow) > 0 {
				in.Allow = &allow
			}
		},
	}
	on.Flags().StringVar(&message, "message", "", "`text` of the message of the 503")
	on.Flags().StringSliceVar(&allow, "allow", nil, "`network` whose addresses are served nevertheless, such as 203.0.113.0/24; may be repeated")
	off := &cobra.Command{Use: "off GATEWAY_ID", Short: "End the maintenance of a gateway"}
	change := func(p func() client.GatewayPatch) func(*client.Client, context.Context, string) (*client.Gateway, error) {
		return func(api *client.Client, ctx context.Context, id string) (*client.Gateway, error) {
			return api.UpdateGateway(ctx, id, p())
		}
	}
	group.AddCommand(
		shows(oneGateway(a), on, change(func() client.GatewayPatch { return client.GatewayPatch{Maintenance: client.Set(in)} }), gatewayFields),
		shows(oneGateway(a), off, change(func() client.GatewayPatch {
			return client.GatewayPatch{Maintenance: client.Clear[client.MaintenanceInput]()}
		}), gatewayFields))
	return group
}

// maintenanceOf returns the object that the flags of a setting and its parts give; nil for --maintenance=false, which goes
// with no other of them.
func maintenanceOf(f *pflag.FlagSet, s *gateway.Setting) (any, error) {
	on, err := f.GetBool(s.Flag.Name)
	if err != nil {
		return nil, err
	}
	m := map[string]any{}
	for _, p := range s.Parts {
		switch {
		case !f.Changed(p.Flag.Name):
		case p.Kind == gateway.KindList:
			m[p.Name] = listFlag(f, p.Flag)
		default:
			m[p.Name] = f.Lookup(p.Flag.Name).Value.String()
		}
	}
	switch {
	case on || !f.Changed(s.Flag.Name):
		return m, nil
	case len(m) > 0:
		return nil, usagef("--%s=false ends the maintenance, so leave out --%s and --%s", s.Flag.Name, s.Parts[0].Flag.Name, s.Parts[1].Flag.Name)
	default:
		return nil, nil
	}
}

// maintenanceText returns the maintenance of a gateway on one line.
func maintenanceText(m client.Maintenance) string {
	text := "on"
	if m.Message != nil {
		text += ": " + *m.Message
	}
	if len(m.Allow) > 0 {
		text += " (not for " + strings.Join(m.Allow, ", ") + ")"
	}
	return text
}
