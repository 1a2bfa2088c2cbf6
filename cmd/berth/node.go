package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/remote"
	"berth/schema"
	"berth/schema/queue"
	"berth/webhooks/api"
)

func newNodeCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Show the nodes of an instance, and operate them", Args: cobra.NoArgs}
	cmd.AddCommand(newNodeListCmd())
	for _, operation := range schema.MemberOperations() {
		if operation == schema.OpAccept {
			continue // such a decision needs a document in Git
		}
		cmd.AddCommand(newNodeOperationCmd(operation))
	}
	return cmd
}

func newNodeListCmd() *cobra.Command {
	var live bool
	cmd := placeCmd("list TENANT.PROJECT/INSTANCE", "List the nodes of an instance, by member",
		`List the nodes of an instance as its scheduler sees them, by the names of its members.
The names of nodes are shown with --break-glass.`+observedHelp, `  berth node list physics.lattice/train`, 1,
		func(cmd *cobra.Command, f *queueFlags, place remote.Place, _ []string) error {
			list := nodeList{Format: "berth.nodes/v1"}
			r := remote.Request{Place: place, Path: "nodes", Query: withLive(url.Values{}, live)}
			if _, err := f.server.Do(cmd.Context(), r, &list); err != nil {
				return err
			}
			return f.output.Print(cmd.OutOrStdout(), list)
		})
	liveFlag(cmd, &live)
	return cmd
}

// nodeWork describes an operation in one line.
func nodeWork(operation string) string {
	return map[string]string{
		schema.OpDrain:  "Take no new jobs on a member, and wait until its jobs have ended",
		schema.OpResume: "Take jobs again on a member that Berth drained",
		schema.OpCordon: "Take no new jobs on a member", schema.OpUncordon: "Take jobs again on a member that Berth cordoned",
		schema.OpRestart: "Restart the daemon of a member", schema.OpReplace: "Move a member to another node",
		schema.OpRemove: "Remove a member that the document does not count any more", schema.OpLabel: "Set labels on a member",
		schema.OpRetry: "Try again what failed on the instance",
	}[operation]
}

func newNodeOperationCmd(operation string) *cobra.Command {
	var flags queueFlags
	body := api.NodeRequest{Operation: operation}
	example := "  berth node " + operation + " physics.lattice/train worker-0 --reason 'a fan is loud'"
	if operation == schema.OpLabel {
		example += " --label fan=loud"
	}
	var key string
	var cancelAfter, wait time.Duration
	cmd := &cobra.Command{
		SuggestFor: map[string][]string{schema.OpResume: {"undrain"}}[operation],
		Use:        operation + " TENANT.PROJECT/INSTANCE MEMBER", Short: nodeWork(operation), Args: cobra.ExactArgs(2),
		Long: nodeWork(operation) + `. The operation is done once, in the plan of the instance,
and is read under its id.` + queueExit,
		Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			place, err := remote.ParsePlace(args[0])
			if err != nil {
				return err
			}
			if !schema.ValidName(args[1]) {
				return cli.Usage(fmt.Errorf("%q is not the name of a member; give one, such as worker-0", args[1]))
			}
			if body.Reason == "" {
				return cli.Usage(errors.New("--reason is missing: people read it beside the operation"))
			}
			if operation == schema.OpLabel && len(body.Labels) == 0 {
				return cli.Usage(errors.New("--label is missing: give NAME=VALUE"))
			}
			if key == "" {
				key = queue.NewKey(time.Now(), rand.Text())
			}
			if cancelAfter > 0 {
				body.OnJobs = &schema.OnJobs{CancelAfterSeconds: int(cancelAfter.Seconds())}
			}
			taken := operationReport{Format: "berth.operation/v1"}
			r := remote.Request{Method: http.MethodPost, Place: place, Path: "nodes/" + args[1] + "/operations", Key: key, Body: body}
			if _, err := flags.server.Do(cmd.Context(), r, &taken); remote.IsRefusal(err) {
				return fmt.Errorf("%w\nnothing was done; berth node list %s lists the members", err, args[0])
			} else if used := new(cli.ExitError); errors.As(err, &used) { // nothing was sent
				return err
			} else if err != nil {
				return fmt.Errorf("%w\nto learn whether it was taken, repeat the call with --key %s", err, key)
			}
			for end := time.Now().Add(wait); !taken.isFinal() && time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
				var now struct{ Status, Result string }
				if _, err := flags.server.Do(cmd.Context(), remote.Request{Place: place, Path: "member-operations/" + taken.OperationID},
					&now); err != nil {
					return err
				}
				taken.Status, taken.Result = now.Status, now.Result
			}
			if err := flags.output.Print(cmd.OutOrStdout(), taken); err != nil {
				return err
			}
			if taken.Status == "failed" || taken.Status == "expired" || wait > 0 && !taken.isFinal() {
				return cli.Exit(1)
			}
			return nil
		},
	}
	flags.add(cmd)
	f := cmd.Flags()
	f.StringVar(&body.Reason, "reason", "", "why; it is audited")
	f.StringVar(&key, "key", "", "idempotency key; default: a new one")
	f.DurationVar(&wait, "wait", 0, "wait so long for the end of the operation")
	if operation == schema.OpLabel {
		f.StringToStringVar(&body.Labels, "label", nil, "label to set, as `NAME=VALUE`")
	}
	if schema.EndsJobs(operation) {
		f.DurationVar(&cancelAfter, "cancel-after", 0, "cancel jobs that still run after so long; default: wait for them")
	}
	return cmd
}

// operationReport is the JSON of an operation.
type operationReport struct {
	Format string `json:"format"` // berth.operation/v1
	api.NodeOperation
	Result string `json:"result,omitempty"`
}

func (r operationReport) isFinal() bool { return r.Status != "requested" && r.Status != "running" }

// Text implements cli.Report.
func (r operationReport) Text(p *cli.Page) error {
	t := p.Table("OPERATION", "MEMBER", "STATUS", "ID", "CORRELATION ID", "RESULT")
	t.Row(cli.Visible(r.Operation), cli.Visible(r.MemberID), cli.Visible(r.Status), cli.Visible(r.OperationID),
		cli.Visible(r.CorrelationID), cli.OrDash(r.Result))
	return t.Flush()
}

// nodeList is the JSON of a list of nodes.
type nodeList struct {
	Format string `json:"format"` // berth.nodes/v1
	queue.NodeList
}

// Text implements cli.Report.
func (l nodeList) Text(p *cli.Page) error {
	t := p.Table("MEMBER", "NODE", "STATE", "CPUS", "GPUS", "REASON")
	for _, n := range l.Items {
		t.Row(cli.Visible(n.Member), cli.OrDash(n.Node), cli.Visible(strings.Join(n.State, "+")), strconv.Itoa(n.CPUs),
			strconv.Itoa(n.GPUs), cli.OrDash(n.Reason))
	}
	return observedTable(p, t, l.Observation)
}
