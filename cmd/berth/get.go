package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/inspect"
	"berth/reconciler"
	"berth/schema"
	"berth/schema/load"
)

// getSource is the part of the help of get and describe about their source.
const getSource = `The documents are those in force, the branch ` + reconciler.BranchInForce + ` as the repository has
it; where Berth has decided nothing yet, those of the work tree. The status is
that of the branch ` + reconciler.BranchStatus + `. Nothing is fetched.

KIND is singular or plural, in any case. NAME is the name with tenant and project,
as the list shows it, or the last part of it where only one has that. KIND/NAME is
the same as KIND NAME.`

func newGetCmd() *cobra.Command {
	var call getCall
	cmd := &cobra.Command{
		Use:   "get KIND [NAME]",
		Short: "List the resources of a kind with their status",
		Long: `List the documents of a kind, or one of them, with their status.

` + getSource + `

Exit status: 0, 1 there is none of that name, 2 usage.`,
		Example: `  berth get instances
  berth get instances --failed
  berth get node dev-gpu-1 -o json`,
		Args:              kindArgs(1, 2),
		ValidArgsFunction: completeResource(schema.Kind.Plural),
		RunE:              call.run,
	}
	call.addTable(cmd)
	cmd.Flags().StringVar(&call.want.Project, "project", "", "only resources of this project, as TENANT.PROJECT")
	cmd.Flags().StringVar(&call.want.Phase, "phase", "", "only resources in this phase, such as failed")
	cmd.Flags().BoolVar(&call.want.Failed, "failed", false, "only resources that are not ready")
	cmd.Flags().StringToStringVarP(&call.labels, "label", "l", nil, "NAME=VALUE: only documents with this label; may be repeated")
	return cmd
}

// getCall is a call of get.
type getCall struct {
	logFlags
	want   inspect.StatusFilter
	labels map[string]string
}

func (g *getCall) run(cmd *cobra.Command, args []string) error {
	args = splitKind(args)
	kind, err := parseKind(args[0])
	if err != nil {
		return err
	}
	if err := g.want.Check(); err != nil {
		return cli.Usage(err)
	}
	inProject := func(p schema.PathPattern) bool { return strings.Contains(string(p), "{project}") }
	if g.want.Project != "" && !slices.ContainsFunc(kind.Info().Places, inProject) {
		return cli.Usage(fmt.Errorf("--project: %s are of no project", kind.Plural()))
	}
	return g.source.Estate(cmd.Context(), func(e *inspect.Estate) error {
		list, err := e.List(cmd.Context(), kind, append(args, "")[1])
		if err != nil {
			return err
		}
		if err := e.Filter(list, g.want, g.labels); err != nil {
			return cli.Usage(err)
		}
		if len(list.Items) > 0 || g.output.Form == "json" {
			return g.output.PrintLong(cmd.OutOrStdout(), list)
		}
		selected := ""
		if g.want != (inspect.StatusFilter{}) || len(g.labels) > 0 {
			selected = " that the flags select"
		}
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "There are no %s in %s%s.\n", kind.Plural(), list.Source, selected)
		return err
	})
}

func newDescribeCmd() *cobra.Command {
	var req logFlags
	cmd := &cobra.Command{
		Use:   "describe KIND NAME",
		Short: "Show one resource: its document, status, conditions and last events",
		Long: `Show one document with everything that Berth recorded of it: phase, members,
attached projects, conditions, held changes and the last events. A member on a node
that a project lends has that project as its source, and the day of its return. An
Instance that uses a shared runtime shows that and its own attachment only.

` + getSource + `

Exit status: 0, 1 there is none of that name, 2 usage.`,
		Example:           `  berth describe instance physics.lattice/train`,
		Args:              kindArgs(2, 2),
		ValidArgsFunction: completeResource(func(k schema.Kind) string { return strings.ToLower(string(k)) }),
		RunE: func(cmd *cobra.Command, args []string) error {
			args = splitKind(args)
			kind, err := parseKind(args[0])
			if err != nil {
				return err
			}
			return req.source.Estate(cmd.Context(), func(e *inspect.Estate) error {
				one, err := e.Describe(cmd.Context(), kind, args[1])
				if err != nil {
					return err
				}
				return req.output.PrintLong(cmd.OutOrStdout(), one)
			})
		},
	}
	req.addTable(cmd)
	return cmd
}

// kindArgs requires KIND, and NAME unless it is optional.
func kindArgs(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		args = splitKind(args)
		switch {
		case len(args) == 0:
			return cli.Usage(fmt.Errorf("%s: KIND is missing; choose one of %s", cmd.Name(), strings.Join(kinds(), ", ")))
		case len(args) < least:
			if _, err := parseKind(args[0]); err != nil {
				name := args[0]
				if kind, _, isPair := strings.Cut(name, "/"); isPair && !strings.Contains(kind, ".") && len(args) == 1 &&
					!strings.Contains(strings.TrimPrefix(name, kind+"/"), "/") {
					return cli.Usage(fmt.Errorf("%s: %q is neither a kind (%s) nor an instance: berth %s instance TENANT.PROJECT/NAME",
						cmd.Name(), kind, strings.Join(kinds(), ", "), cmd.Name()))
				}
				if !strings.Contains(name, "/") {
					name = "TENANT.PROJECT/" + name
				}
				return cli.Usage(fmt.Errorf("%s: KIND or NAME is missing; for an instance: berth %s instance %s", cmd.Name(), cmd.Name(),
					name))
			}
			return cli.Usage(fmt.Errorf("%s: NAME is missing; berth get %s lists the names", cmd.Name(), args[0]))
		case len(args) > most:
			return cli.Usage(fmt.Errorf("%s: too many arguments; give KIND and one NAME", cmd.Name()))
		}
		return nil
	}
}

// splitKind splits a first argument such as instance/physics.lattice/train, as kubectl takes it,
// into KIND and NAME.
func splitKind(args []string) []string {
	if len(args) == 0 {
		return args
	}
	word, name, ok := strings.Cut(args[0], "/")
	if _, isKind := schema.ParseKind(word); !ok || !isKind {
		return args
	}
	return append([]string{word, name}, args[1:]...)
}

// kinds are all kinds as get takes them.
func kinds() (names []string) {
	for _, k := range schema.Kinds() {
		names = append(names, k.Plural())
	}
	return names
}

// parseKind parses KIND. The error names the command for other words, or lists all kinds.
func parseKind(word string) (schema.Kind, error) {
	kind, ok := schema.ParseKind(word)
	if instead := foreignCommands()["get "+strings.ToLower(word)]; !ok && instead != "" {
		return "", cli.Usage(fmt.Errorf("unknown kind %q: %s", word, instead))
	}
	if !ok {
		if like := load.Nearest(strings.ToLower(word), kinds()); like != "" {
			return "", cli.Usage(fmt.Errorf("unknown kind %q: did you mean %q?", word, like))
		}
		return "", cli.Usage(fmt.Errorf("unknown kind %q; choose one of %s", word, strings.Join(kinds(), ", ")))
	}
	return kind, nil
}
