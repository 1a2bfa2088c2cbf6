package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/inspect"
	"berth/reconciler"
	"berth/schema"
)

func newAuditCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show and verify the audit log",
	}
	cmd.AddCommand(newAuditListCmd(), newAuditVerifyCmd())
	return cmd
}

func newAuditVerifyCmd() *cobra.Command {
	var req logFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify that no audit record is missing, changed or out of place",
		Long: `Verify the audit log on ` + reconciler.BranchStatus + ` from its first record. Each record has the
hash of the one before, and revision.yaml has the hash of the last. So a record
that was changed, removed, added, repeated or moved is found, and so is a missing
end.

A person who can write to the branch can replace the whole chain. To find that
too, keep the head that this command prints elsewhere, or protect the branch.

Exit status: 0 the chain is whole, 1 it is not or there is none, 2 usage.`,
		Example: `  berth audit verify
  berth audit verify --repo ~/estate -o json | jq .whole`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return req.source.With(cmd.Context(), func(r *inspect.Repository) error {
				v, err := r.VerifyAudit(cmd.Context(), cmd.ErrOrStderr())
				if err != nil {
					return err
				}
				if err := req.output.Print(cmd.OutOrStdout(), v); err != nil || v.Whole {
					return err
				}
				return cli.Exit(1)
			})
		},
	}
	req.add(cmd)
	return cmd
}

func newAuditListCmd() *cobra.Command {
	var req logFlags
	var want inspect.AuditFilter
	cmd := &cobra.Command{
		Use:   "list [--correlation ID] [--actor LOGIN] [--project TENANT.PROJECT] [--instance TENANT.PROJECT/NAME] [--since TIME]",
		Short: "List the audit records, oldest first",
		Long: `List the audit records on ` + reconciler.BranchStatus + `, oldest first. With -o json, each line
is one record, unchanged.

Exit status: 0, 1 the log is missing or partly unreadable, or no entry has a name
that a flag gives, 2 usage.`,
		Example: `  berth audit list --actor anna --since 24h
  berth audit list --instance physics.lattice/train -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := want.Begin(time.Now()); err != nil {
				return cli.Usage(err)
			}
			return req.source.With(cmd.Context(), func(r *inspect.Repository) error {
				list := func(w io.Writer) error {
					return r.ListAudit(cmd.Context(), req.output.Entries(w, inspect.AuditColumns()...), cmd.ErrOrStderr(), want)
				}
				if req.output.Form == "json" {
					return list(cmd.OutOrStdout())
				}
				return cli.Paged(cmd.OutOrStdout(), list)
			})
		},
	}
	req.addTable(cmd)
	cmd.Flags().StringVar(&want.Correlation, "correlation", "", "only records of this correlation id")
	cmd.Flags().StringVar(&want.Actor, "actor", "", "only actions of this login or service account")
	cmd.Flags().StringVar(&want.Project, "project", "", "only records about this project, as TENANT.PROJECT")
	cmd.Flags().StringVar(&want.Instance, "instance", "", "only records about this instance, as TENANT.PROJECT/NAME")
	_ = cmd.RegisterFlagCompletionFunc("instance", completeNames(schema.KindInstance)) // the flag is there
	sinceFlag(cmd, &want.Since, "records")
	return cmd
}
