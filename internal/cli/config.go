package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/gateway"
)

func newConfig(a *app) *cobra.Command {
	return newGroup("config", "Manage a gateway with a configuration file",
		newConfigValidate(a), newConfigDiff(a), newConfigApply(a), newConfigExport(a))
}

func newConfigValidate(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE|-", Short: "Validate a configuration file offline", Args: atMost(1),
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := a.readConfig(args)
			if err != nil {
				return err
			}
			doc, err := gateway.ParseDocument(d.content)
			if err != nil {
				return a.mistakes(d, err)
			}
			a.say("%s is valid: %d routes.", clean(d.name), len(doc.Routes))
			return nil
		},
	}
}

type configPush struct {
	*app
	gateway string
	dryRun  bool
	verbose bool
}

func (o *configPush) command(c *cobra.Command) *cobra.Command {
	c.Args = atMost(1)
	verboseFlag(c.Flags(), &o.verbose)
	c.Flags().StringVar(&o.gateway, "gateway", "", defaultGatewayUsage)
	return c
}

func newConfigApply(a *app) *cobra.Command {
	o := &configPush{app: a}
	c := o.command(&cobra.Command{
		Use:     "apply --gateway ID FILE|-",
		Short:   "Apply a configuration file; ${env:NAME} is replaced from your environment",
		Example: "  keygate config apply --gateway gw_01j… orders.yaml",
		RunE: func(c *cobra.Command, args []string) error {
			_, p, err := o.push(c, args, o.dryRun)
			if err != nil {
				return err
			}
			return o.printPush(p, o.dryRun, o.verbose)
		},
	})
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would change, but change nothing")
	return c
}

// push pushes the file. It returns what it sent and what that changed, or in a dry
// run would change.
func (o *configPush) push(c *cobra.Command, args []string, dryRun bool) ([]byte, *client.Push, error) {
	d, err := o.readConfig(args)
	if err != nil {
		return nil, nil, err
	}
	api, err := o.connect()
	if err != nil {
		return nil, nil, err
	}
	if o.gateway, err = o.gatewayID(api, o.gateway); err != nil {
		return nil, nil, err
	}
	p, err := inTurn(c.Context(), o.app, func() (*client.Push, error) {
		return api.PushConfig(c.Context(), o.gateway, d.content, dryRun)
	})
	return d.content, p, o.mistakes(d, err)
}

func newConfigDiff(a *app) *cobra.Command {
	o := &configPush{app: a}
	return o.command(&cobra.Command{
		Use:   "diff --gateway ID FILE|-",
		Short: "Show what applying a configuration file would change; the exit status is 3 if anything would",
		RunE:  o.diff,
	})
}

// settingChange is a field of the file's section gateway that differs from the
// gateway's current value.
type settingChange struct {
	Field  string  `json:"field"`
	Before *string `json:"before"`
	After  *string `json:"after"`
}

// difference is the output of config diff.
type difference struct {
	*client.Push
	Gateway []settingChange `json:"gateway"`
}

func (o *configPush) diff(c *cobra.Command, args []string) error {
	content, p, err := o.push(c, args, true)
	if err != nil {
		return err
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	current, err := api.Gateway(c.Context(), o.gateway)
	if err != nil {
		return err
	}
	doc, err := gateway.ParseDocument(content)
	if err != nil {
		return err
	}
	d := difference{p, gatewayChanges(&doc.Gateway, current)}
	if !o.forPeople() {
		err = o.printData(d)
	} else {
		for _, s := range d.Gateway {
			fmt.Fprintf(o.Out, "~ gateway.%s: %s -> %s\n", s.Field, clean(str(s.Before)), clean(str(s.After)))
		}
		err = o.printPush(p, true, o.verbose)
	}
	if err == nil && len(d.Gateway)+len(p.Added)+len(p.Removed)+len(p.Changed) > 0 {
		return errDifferent
	}
	return err
}

// gatewayChanges compares the section gateway of a file with the current gateway. An
// absent field changes nothing; null removes the field.
func gatewayChanges(s *gateway.Section, current *client.Gateway) []settingChange {
	changes := []settingChange{}
	add := func(name, before, after string) {
		if before != after {
			changes = append(changes, settingChange{name, given(before), given(after)})
		}
	}
	if s.Name.Present {
		add("name", current.Name, s.Name.Value)
	}
	if s.UpstreamURL.Present {
		add("upstream_url", current.UpstreamURL, s.UpstreamURL.Value)
	}
	if s.GlobalLimit.Present {
		after := ""
		if limit := s.GlobalLimit.Value; !limit.IsZero() {
			sustained, burst := limit.Sustained.String(), limit.Burst.String()
			after = globalLimit(&client.GlobalLimit{Sustained: given(sustained), Burst: given(burst)})
		}
		add("global_rate_limit", globalLimit(current.GlobalRateLimit), after)
	}
	return changes
}

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

// readText returns the content of a file as a string.
func readText(name string) (string, error) {
	content, err := os.ReadFile(name)
	return string(content), err
}
