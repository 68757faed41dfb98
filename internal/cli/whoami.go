package cli

import (
	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
)

// caller is the output of whoami. It never contains the key.
type caller struct {
	URL       string `json:"url"`
	Source    string `json:"source"` // of the key
	Context   string `json:"context,omitempty"`
	AccountID string `json:"account_id"`
	Account   string `json:"account"`
	Plan      string `json:"plan"`
	Default   string `json:"default_plan,omitempty"` // of owners that a key creates
	KeyID     string `json:"key_id,omitempty"`
	KeyName   string `json:"key_name,omitempty"`
	UserID    string `json:"user_id,omitempty"` // in place of a key
	User      string `json:"user,omitempty"`
	Scope     string `json:"scope"`
	Gateway   string `json:"gateway_id,omitempty"` // default of the context
}

func newWhoami(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Show the server, the account and the key or user that commands use, and where the key comes from", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			used, err := a.access()
			if err != nil {
				return err
			}
			api, err := a.clientOf(used.serverAccess)
			if err != nil {
				return err
			}
			account, err := api.Account(c.Context())
			if err != nil {
				return err
			}
			w := caller{
				URL: used.URL, Source: used.source, Context: used.context, AccountID: account.AccountID, Account: account.Name,
				Plan: string(account.Plan), KeyID: account.Key.KeyID, KeyName: account.Key.Name, Scope: account.Scope(), Gateway: used.Gateway,
				Default: str(account.DefaultPlan),
			}
			who := terminal.Field{"KEY", withID(w.KeyName, w.KeyID)}
			if u := account.User; u != nil {
				w.UserID, w.User = u.UserID, userName(u)
				who = terminal.Field{"USER", withID(w.User, w.UserID)}
			}
			return a.PrintRecord(w, func() []terminal.Field {
				return append([]terminal.Field{
					{"SERVER", w.URL}, {"ACCOUNT", withID(w.Account, w.AccountID)}, {"PLAN", w.Plan},
					who, {"SCOPE", w.Scope}, {"KEY FROM", w.Source},
				}, filled(terminal.Field{"DEFAULT PLAN", w.Default}, terminal.Field{"GATEWAY", w.Gateway})...)
			})
		},
	}
}
