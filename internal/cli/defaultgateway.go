package cli

import (
	"context"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// searchedGateways is the largest number of gateways among which printWhereItAnswers looks for the default gateway.
const searchedGateways = 1000

// printWhereItAnswers prints which requests reach the new gateway g, and which gateway gets
// requests for unknown hosts.
func (a *app) printWhereItAnswers(ctx context.Context, api *client.Client, g *client.Gateway) {
	name, host := terminal.Clean(g.Name), terminal.Clean(g.Hostname)
	if g.Default {
		a.Say("%s is the default gateway: it answers at %s and at every host that no other gateway has.", name, host)
		return
	}
	a.Say("%s answers at %s.", name, host)
	if d := defaultGateway(ctx, api); d != nil {
		a.Say("Unknown hosts reach the default gateway, %s (%s). To change that: keygate gateways update %s --default",
			terminal.Clean(d.Name), terminal.Clean(d.GatewayID), terminal.Clean(g.GatewayID))
	}
}

// defaultGateway returns the default gateway, or nil if it is not found, for example because the
// account has none. The gateway was created already, so an error is not worth reporting.
func defaultGateway(ctx context.Context, api *client.Client) *client.Gateway {
	searched := 0
	for g, err := range api.Gateways(ctx, client.ListOptions{}) {
		if searched++; err != nil || searched > searchedGateways {
			return nil
		}
		if g.Default {
			return &g
		}
	}
	return nil
}
