package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/inspect"
	"berth/runtimes/backends"
	"berth/schema"
)

func newExplainCmd() *cobra.Command {
	var from inspect.ExplainOptions
	var output cli.Output
	var roles bool
	cmd := &cobra.Command{
		Use:   "explain {TENANT.PROJECT/INSTANCE [FIELD] | TENANT/RUNTIME [FIELD] | --roles}",
		Short: "Show why an instance has its values, how it is, and why a change is held",
		Long: `Show each value of an instance with the chain of layers that made it: the
platform's policies by name, the tenant's, the entitlement's overrides, then the
version and the instance. For each layer: what it says, in which file and line, and
the value after it. A value without a policy has the document, version or role
binding that says it, or the default.

FIELD shows one value, or those below it: regions, roles, max_gpus_per_instance,
config.partitions. TENANT/RUNTIME is a shared runtime, platform/RUNTIME one of the
platform's.

FIELD may also be the name of a limit, as the scheduler gives it when it refuses a
job. For an instance that uses a shared runtime, that is a limit of its project; for
a shared runtime, of each attached project. Each value has the lines of the
Attachment and of the Instance that set it; the narrower one counts.

The estate is read from --dir, from the work tree of --repo, or from --rev of it.
If the repository has Berth's branches, its own or those of the last git fetch, the
output also has:
  now    the phase of the instance, and the nodes of its members
  held   changes of the instance on main that are not in force, with the reason
If the document is invalid or missing, the version in force is explained. Without
the branches, the instance is assumed to exist.

With --tenant NAME=DIR, that tenant's documents are read from its own repository in
DIR. With --roles, show what each role may do.

Exit status: 0 (also if policy refuses the instance), 1 not found, 2 usage.`,
		Example: `  berth explain physics.lattice/train
  berth explain physics.lattice/train max_gpus_per_instance
  berth explain physics.collider/analysis submission_limits
  berth explain --roles`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeNames(schema.KindInstance, schema.KindSharedRuntime),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkExplain(from, roles, args); err != nil {
				return cli.Usage(err)
			}
			if roles {
				return output.PrintLong(cmd.OutOrStdout(), newRolesReport())
			}
			key, err := instanceKey(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			from.Limits = backends.Limits
			e, err := inspect.Explain(cmd.Context(), from, key, append(args, "")[1], time.Now())
			if err != nil {
				return fmt.Errorf("explain: %w", err)
			}
			return output.PrintLong(cmd.OutOrStdout(), e)
		},
	}
	cmd.Flags().StringVar(&from.Dir, "dir", "",
		"directory of the estate (default the working directory, or the one above it that has platform/ and tenants/)")
	cmd.Flags().StringVar(&from.Repo, "repo", "", "Git repository of the estate, or a directory in it")
	cmd.Flags().StringVar(&from.Rev, "rev", "", "revision of --repo, such as main (default the work tree)")
	cmd.Flags().StringToStringVar(&from.Tenants, "tenant", nil,
		"NAME=DIR: a tenant whose documents are in a directory of their own; may be repeated")
	output.Flag(cmd)
	cmd.Flags().BoolVar(&roles, "roles", false, "show what each role may do")
	return cmd
}

// checkExplain returns an error in how the command was called.
func checkExplain(from inspect.ExplainOptions, roles bool, args []string) error {
	switch {
	case roles && len(args) > 0:
		return errors.New("explain: --roles is about all instances: give no name")
	case !roles && len(args) == 0:
		return errors.New("explain: name missing; give TENANT.PROJECT/INSTANCE, or --roles")
	case !roles && from.Dir != "" && (from.Repo != "" || from.Rev != ""):
		return errors.New("explain: --dir and --repo name two estates; give one of them")
	}
	return nil
}

// instanceKey parses TENANT.PROJECT/INSTANCE, or TENANT/RUNTIME of a shared runtime.
// TENANT is platform for a shared runtime of the platform.
func instanceKey(name string) (schema.Key, error) {
	id, instance, _ := strings.Cut(name, "/")
	tenant, project, ofProject := strings.Cut(id, ".")
	if tenant != "" && instance != "" && !ofProject {
		if tenant == "platform" {
			tenant = ""
		}
		return schema.Key{Kind: schema.KindSharedRuntime, Tenant: tenant, Name: instance}, nil
	}
	if name == "roles" || name == "role" || name == "permissions" {
		return schema.Key{}, errors.New("explain: the table of roles and permissions: berth explain --roles")
	}
	if kind, isKind := schema.ParseKind(tenant); isKind && instance == "" {
		return schema.Key{},
			fmt.Errorf("explain: %q is a kind, and explain takes an instance: berth explain TENANT.PROJECT/INSTANCE [FIELD]; berth "+
				"describe %s NAME shows a document, and berth schema docs the fields of each kind", name, strings.ToLower(string(kind)))
	}
	if tenant == "" || project == "" || instance == "" {
		return schema.Key{}, fmt.Errorf("explain: %q does not name an instance; give TENANT.PROJECT/INSTANCE, or TENANT/RUNTIME for a "+
			"shared runtime (platform/RUNTIME for one of the platform)", name)
	}
	return schema.InstanceKey(tenant, project, instance), nil
}
