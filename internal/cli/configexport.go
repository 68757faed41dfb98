package cli

import (
	"github.com/spf13/cobra"
)

func newConfigExport(a *app) *cobra.Command {
	o := &gatewayCommand{app: a, optional: true}
	return o.flag(&cobra.Command{Use: "export --gateway ID", Short: "Print a gateway and its routes as a configuration file", RunE: func(c *cobra.Command, args []string) error {
		id, api, err := o.gateway(args)
		if err != nil {
			return err
		}
		content, err := api.Config(c.Context(), id)
		if err != nil {
			return err
		}
		_, err = o.Out.Write(content)
		return err
	}})
}
