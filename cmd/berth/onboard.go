package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/localestate"
	"berth/runtimes/backends"
	"berth/schema"
	"berth/schema/estate"
	"berth/schema/onboard"
)

func newOnboardCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "onboard", Short: "Say whether an app is ready for projects", Args: cobra.NoArgs}
	var dir string
	var administrators []string
	var tenant string
	var output cli.Output
	check := &cobra.Command{
		Use:   "check APP",
		Short: "Check the seven points of onboarding of an app",
		Long: `Check the seven points that an app needs before projects use it: contracts, service accounts,
boundaries, events, artifact sources, lifecycle and runbook. Each point has its evidence in the
estate, or what is missing and the next step. The boundaries are tried: each request that the
app's accounts could make in another project is decided by the rules in force.

Exit status: 0 all points hold, 1 some do not, or the estate has no such app, 2 usage.`,
		Example: `  berth onboard check slurm
  berth onboard check beamline --tenant physics
  berth onboard check slurm --dir ~/estate -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, err := localestate.Root(dir, "--dir DIR")
			if err != nil {
				return cli.Usage(err)
			}
			estate, err := localestate.Load(cmd.Context(), root)
			if err != nil {
				return err
			}
			app, err := appOf(estate.Desired, tenant, args[0])
			if err != nil {
				return err
			}
			points := onboard.Check(estate.Desired, administrators, app, backends.Names())
			report := onboardReport{"berth.onboard/v1", args[0],
				!slices.ContainsFunc(points, func(p onboard.Point) bool { return !p.Holds }), points}
			return errors.Join(output.Print(cmd.OutOrStdout(), report), report.exit())
		},
	}
	output.Flag(check)
	check.Flags().StringVar(&dir, "dir", ".", "`directory` of the estate")
	check.Flags().StringVar(&tenant, "tenant", "", "`tenant` of an app of its own, where several have the name")
	check.Flags().StringSliceVar(&administrators, "administrator", nil, "`login` that berth.yaml names as administrator")
	cmd.AddCommand(check)
	return cmd
}

// appOf returns the app of a slug: that of a tenant, the platform's, or of the one tenant that has it.
func appOf(d *schema.Desired, tenant, slug string) (*schema.App, error) {
	if tenant != "" && d.Tenants[tenant] == nil {
		return nil, fmt.Errorf("there is no tenant %s%s", cli.Visible(tenant), estate.Meant(tenant, slices.Sorted(maps.Keys(d.Tenants))))
	}
	apps := onboard.Apps(d, tenant, slug)
	if len(apps) == 0 && tenant != "" && len(onboard.Apps(d, "", slug)) > 0 {
		return nil, cli.Usage(fmt.Errorf("%s has no app %s of its own: without --tenant, the check is of the platform's or of another "+
			"tenant's", cli.Visible(tenant), cli.Visible(slug)))
	}
	if len(apps) == 0 {
		if guess := estate.Meant(slug, slices.Sorted(maps.Keys(d.Platform.Apps))); guess != "" {
			return nil, fmt.Errorf("there is no app %s%s", cli.Visible(slug), guess)
		}
		return nil, fmt.Errorf("the estate has no valid app %s: add catalog/%s/app.yaml below platform/ or tenants/<tenant>/, or run "+
			"berth validate", cli.Visible(slug), cli.Visible(slug))
	}
	if len(apps) > 1 && apps[0].Key.Tenant != "" {
		var names []string
		for _, a := range apps {
			names = append(names, a.Key.Tenant)
		}
		return nil, cli.Usage(fmt.Errorf("several tenants have an app %s: choose one of %s with --tenant", cli.Visible(slug),
			strings.Join(names, ", ")))
	}
	return apps[0], nil
}

// onboardReport is the JSON of `berth onboard check`.
type onboardReport struct {
	Format string          `json:"format"` // berth.onboard/v1
	App    string          `json:"app"`
	Ready  bool            `json:"ready"`
	Points []onboard.Point `json:"points"`
}

func (r onboardReport) exit() error {
	if r.Ready {
		return nil
	}
	return cli.Exit(1)
}

// Text implements cli.Report.
func (r onboardReport) Text(p *cli.Page) error {
	var all []error
	line := func(format string, args ...any) {
		_, err := fmt.Fprintf(p, format+"\n", args...)
		all = append(all, err)
	}
	held := 0
	for _, point := range r.Points {
		mark := "missing"
		if point.Holds {
			mark = "holds"
			held++
		}
		line("%d. %s: %s", point.Number, point.Name, mark)
		for _, e := range point.Evidence {
			line("   %s", cli.Visible(e))
		}
		if point.Missing != "" {
			line("   → %s", cli.Visible(point.Missing))
		}
	}
	line("%s: %d of %d points hold", cli.Visible(r.App), held, len(r.Points))
	return errors.Join(all...)
}
