package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/daemon"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/reconciler/plan"
	"berth/schema"
)

// logRequest has the flags of a command that reads berth/status. The branch is read
// from a local repository; nothing is fetched.
type logRequest struct {
	repo, config, rev, output string
	noHeaders                 bool // of tables
}

// flags adds the flags that all such commands have.
func (r *logRequest) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.repo, "repo", "", "Git repository of the estate, or a directory in it (default: the local repository that ./berth.yaml names, else the working directory)")
	cmd.Flags().StringVarP(&r.config, "config", "c", "", "berth.yaml that names the local repository of the estate, or the directory of the daemon's mirror")
	cmd.Flags().StringVar(&r.rev, "rev", "", "revision of "+reconciler.BranchStatus+" to read (default: the branch itself, or origin's where that is newer)")
	cli.OutputFlag(cmd, &r.output, "text", "json")
}

// tableFlags adds the flags of such a command that writes a table.
func (r *logRequest) tableFlags(cmd *cobra.Command) {
	r.flags(cmd)
	cmd.Flags().BoolVar(&r.noHeaders, "no-headers", false, "write tables without their headers")
}

// estateLog is an open repository and the commit of berth/status to read.
type estateLog struct {
	*gitrepo.Repo
	tips   reconciler.Tips
	status string
}

// directory returns the directory of the repository to read.
func (r *logRequest) directory() (string, error) {
	const implied = "berth.yaml"
	path := r.config
	switch {
	case r.repo != "" && r.config != "":
		return "", errors.New("--repo and --config name two repositories; give one of them")
	case r.repo != "":
		return r.repo, nil
	case path == "":
		if _, err := os.Stat(implied); err != nil {
			return ".", nil
		}
		path = implied
	}
	c, err := daemon.ReadConfig(path)
	if err != nil && r.config == "" {
		err = fmt.Errorf("%w\ncorrect it, or give --repo . to read the working directory", err)
	}
	if err != nil {
		return "", err
	}
	dir, ok := c.LocalRepository()
	switch {
	case ok:
		return dir, nil
	case r.config == "":
		return ".", nil // a clone with the daemon's configuration in it
	}
	mirror := gitrepo.MirrorDir(c.Repository.Directory)
	if _, err := os.Stat(mirror); err == nil {
		return mirror, nil
	}
	return "", fmt.Errorf("%s: neither repository.url %s nor the daemon's mirror in %s is on this machine; run the command in a clone, after git fetch", path, cli.Visible(c.Repository.URL), mirror)
}

// fetchBranches fetches Berth's branches into a clone, whatever its configuration.
const fetchBranches = "git fetch origin 'refs/heads/berth/*:refs/remotes/origin/berth/*'"

// open opens the repository. The caller closes it, unless there is an error.
func (r *logRequest) open(ctx context.Context) (*estateLog, error) {
	l, err := r.openAny(ctx)
	if err != nil {
		return nil, err
	}
	if l.status == "" {
		return nil, errors.Join(fmt.Errorf("branch %s not found here or at origin; in a clone, run %s; in an estate of your own, run Berth first: berth sync -c berth.yaml --once", reconciler.BranchStatus, fetchBranches), l.Close())
	}
	return l, nil
}

// openAny is open for a repository that may have no berth/status.
func (r *logRequest) openAny(ctx context.Context) (*estateLog, error) {
	dir, err := r.directory()
	if err != nil {
		return nil, cli.Usage(err)
	}
	repo, err := gitrepo.OpenLocal(dir)
	if errors.Is(err, reconciler.ErrNotFound) {
		err = fmt.Errorf("%w; run the command in a clone of the estate, or give --repo DIR", err)
	}
	if err != nil {
		return nil, cli.Usage(err)
	}
	l := &estateLog{Repo: repo}
	l.tips, err = repo.Latest(ctx)
	if l.status = l.tips.Status; r.rev != "" && err == nil {
		l.status, err = repo.Resolve(ctx, r.rev)
	}
	if err != nil {
		return nil, cli.Usage(errors.Join(err, repo.Close()))
	}
	return l, nil
}

// order reads in an order, and warns on w of files that are not part of the log.
func order(w io.Writer, newestFirst bool) statusbranch.LogOrder {
	return statusbranch.LogOrder{NewestFirst: newestFirst, Stray: func(path, why string) {
		fmt.Fprintf(w, "warning: %s: %s\n", cli.Visible(path), why)
	}}
}

// eventPayload has the fields that name the resource of an event.
type eventPayload struct {
	OrgID           string `json:"org_id"`
	ProjectID       string `json:"project_id"`
	AppSlug         string `json:"app_slug"`
	ResourceName    string `json:"resource_name"`
	AppInstanceID   string `json:"app_instance_id"`
	ArtifactID      string `json:"artifact_id"`
	SharedRuntimeID string `json:"shared_runtime_id"`
	AttachmentID    string `json:"attachment_id"`
	Revision        string `json:"revision"`
	FailureReason   string `json:"failure_reason"`
}

// payloadOf decodes an event's payload, as far as it has these fields.
func payloadOf(e plan.Event) (p eventPayload) {
	_ = json.Unmarshal(e.Payload, &p)
	return p
}

// about is the name of the event's resource, as the commands take it.
func (p eventPayload) about() string {
	switch {
	case p.ResourceName != "":
		return p.ResourceName
	case p.AppInstanceID != "": // an event without a resource name
		return p.ProjectID + "/" + p.AppInstanceID
	case p.ArtifactID != "":
		return p.ProjectID + "/" + p.ArtifactID
	case p.AttachmentID != "":
		return p.SharedRuntimeID + "/" + p.AttachmentID
	case p.SharedRuntimeID != "":
		return p.SharedRuntimeID
	}
	return p.ProjectID + "/" + p.AppSlug
}

// eventLine is an event as text.
func eventLine(e plan.Event) string {
	p := payloadOf(e)
	line := fmt.Sprintf("%s  %-38s %s  %s", cli.Stamp(e.OccurredAt), cli.Visible(e.EventType), cli.Visible(p.about()), cli.Visible(e.CorrelationID))
	if p.FailureReason != "" {
		line += "  " + cli.Visible(p.FailureReason)
	}
	return line
}

func newEventsCmd() *cobra.Command {
	var req logRequest
	var want struct{ correlation, instance string }
	var follow bool
	cmd := &cobra.Command{
		Use:   "events [--correlation ID] [--instance TENANT.PROJECT/NAME] [--follow]",
		Short: "Show the events of the estate, oldest first",
		Long: `Show the events on the branch ` + reconciler.BranchStatus + `, oldest first. The branch is read as the
repository has it; nothing is fetched.

With -o json, each line is one event in its envelope; berth schema export --events
DIR writes the schemas.

With --follow, new events are shown as the branch gets them, until interrupted.

Exit status: 0, 1 there is no log to read or part of it cannot be read, 2 usage.`,
		Example: `  berth events --follow
  berth events --instance physics.lattice/train`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t := cli.NewTable(cmd.OutOrStdout(), req.noHeaders, "TIME", "EVENT", "RESOURCE", "CORRELATION-ID", "REASON")
			show := func(e plan.Event) error {
				if want.correlation != "" && e.CorrelationID != want.correlation {
					return nil
				}
				if p := payloadOf(e); want.instance != "" && (p.AppInstanceID == "" || p.about() != want.instance) {
					return nil
				}
				if req.output == "json" {
					return json.NewEncoder(cmd.OutOrStdout()).Encode(e)
				}
				p := payloadOf(e)
				return t.Row(cli.Stamp(e.OccurredAt), e.EventType, p.about(), e.CorrelationID, p.FailureReason)
			}
			f := follower{request: req, stderr: cmd.ErrOrStderr(), show: show, flush: t.Flush}
			damaged, err := f.more(cmd.Context())
			for follow && err == nil {
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(500 * time.Millisecond):
				}
				_, err = f.more(cmd.Context())
			}
			switch {
			case err != nil && cmd.Context().Err() != nil:
				return nil
			case err != nil:
				return err
			case damaged:
				return cli.Exit(1)
			}
			return nil
		},
	}
	req.tableFlags(cmd)
	cmd.Flags().StringVar(&want.correlation, "correlation", "", "only events of this correlation id")
	cmd.Flags().StringVar(&want.instance, "instance", "", "only events of this instance, as TENANT.PROJECT/NAME")
	_ = cmd.RegisterFlagCompletionFunc("instance", completeNames(schema.KindInstance)) // the flag is there
	cmd.Flags().BoolVar(&follow, "follow", false, "show new events as the branch gets them")
	return cmd
}

// follower shows a log, and continues after the last event that it showed.
type follower struct {
	request logRequest
	stderr  io.Writer
	show    func(plan.Event) error
	flush   func() error // writes the rows that show added
	tip     string       // of the branch, when it was last read
	last    statusbranch.Logged[plan.Event]
}

// more shows the events that were not shown yet. damaged: some are unreadable.
func (f *follower) more(ctx context.Context) (damaged bool, err error) {
	l, err := f.request.open(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.flush(), l.Close()) }()
	if l.status == f.tip {
		return false, nil
	}
	if f.tip != "" {
		return f.later(ctx, l)
	}
	for e, err := range l.Events(ctx, l.status, order(f.stderr, false)) {
		if f.last = e; err != nil {
			damaged = true
			fmt.Fprintf(f.stderr, "berth: %s:%d: %v\n", cli.Visible(e.File), e.Line, err)
			continue
		}
		if err := f.show(e.Value); err != nil {
			return damaged, err
		}
	}
	f.tip = l.status
	return damaged, ctx.Err()
}

// later shows the events after the last one shown. It reads from the end backwards,
// so that it costs as much as there are new events.
func (f *follower) later(ctx context.Context, l *estateLog) (damaged bool, err error) {
	var fresh []statusbranch.Logged[plan.Event]
	for e, err := range l.Events(ctx, l.status, order(io.Discard, true)) {
		if e.File == f.last.File && e.Line == f.last.Line {
			break
		}
		if err != nil {
			damaged = true
			fmt.Fprintf(f.stderr, "berth: %s:%d: %v\n", cli.Visible(e.File), e.Line, err)
			continue
		}
		fresh = append(fresh, e)
	}
	slices.Reverse(fresh)
	for _, e := range fresh {
		if err := f.show(e.Value); err != nil {
			return damaged, err
		}
		f.last = e
	}
	f.tip = l.status
	return damaged, ctx.Err()
}
