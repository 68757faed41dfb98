package cli

import (
	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func callingAccountFields(c *client.CallingAccount) []terminal.Field {
	return append(accountFields(&c.Account), terminal.Field{"DEFAULT PLAN", str(c.DefaultPlan)})
}

// ownAccountArgs refuses the name of an account: the commands are about that of the key.
func ownAccountArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s is about the account of the key: did you mean keygate accounts %s %s?", c.CommandPath(), c.Name(), args[0])
	}
	return nil
}

func newAccountGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "get", Short: "Show the account of the key", Args: ownAccountArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := a.connect()
			if err != nil {
				return err
			}
			account, err := api.Account(c.Context())
			if err != nil {
				return err
			}
			return show(a, account, callingAccountFields)
		},
	}
}

func newAccountUpdate(a *app) *cobra.Command {
	plan := ""
	c := &cobra.Command{
		Use: "update", Short: "Change the account of the key; an empty value clears a field", Args: ownAccountArgs,
		Example: "  keygate account update --default-plan free",
	}
	c.Flags().StringVar(&plan, "default-plan", "", "`name` or id of the plan of owners that are created because a key names them")
	c.RunE = func(c *cobra.Command, _ []string) error {
		set := changesOf(c).text("default-plan", plan)
		if set.IsZero() {
			return usagef("nothing to change: give --default-plan")
		}
		p := client.AccountDefaultsPatch{DefaultPlan: set}
		if isID(plan) {
			p = client.AccountDefaultsPatch{DefaultPlanID: set}
		}
		api, err := a.connect()
		if err != nil {
			return err
		}
		account, err := api.UpdateAccountDefaults(c.Context(), p)
		if err != nil {
			return a.unknownPlan(api, plan, err)
		}
		return show(a, account, callingAccountFields)
	}
	return c
}
