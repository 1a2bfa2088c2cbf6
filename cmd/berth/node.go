package main

import (
	"cmp"
	"context"
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
		if schema.AcceptsLoss(operation) {
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
		schema.OpRetry: "Try again what failed on the instance", schema.OpHold: "Change nothing on the instance until its release",
		schema.OpRelease: "End the hold of the instance",
	}[operation]
}

// nodeOperation is a call that operates a member.
type nodeOperation struct {
	queueFlags
	body        api.NodeRequest
	key         string
	cancelAfter time.Duration // 0: jobs are waited for
	wait        time.Duration // for the end of the operation
}

func newNodeOperationCmd(operation string) *cobra.Command {
	call := nodeOperation{body: api.NodeRequest{Operation: operation}}
	example := "  berth node " + operation + " physics.lattice/train worker-0 --reason 'a fan is loud'"
	if operation == schema.OpLabel {
		example += " --label fan=loud"
	}
	cmd := &cobra.Command{
		SuggestFor: map[string][]string{schema.OpResume: {"undrain"}}[operation],
		Use:        operation + " TENANT.PROJECT/INSTANCE MEMBER", Short: nodeWork(operation), Args: cobra.ExactArgs(2),
		Long: nodeWork(operation) + `. The operation is done once, in the plan of the instance,
and is read under its id.` + queueExit,
		Example: example,
		RunE:    call.run,
	}
	call.add(cmd)
	f := cmd.Flags()
	f.StringVar(&call.body.Reason, "reason", "", "why; it is audited")
	f.StringVar(&call.key, "key", "", "idempotency key; default: a new one")
	f.DurationVar(&call.wait, "wait", 0, "wait so long for the end of the operation")
	if operation == schema.OpLabel {
		f.StringToStringVar(&call.body.Labels, "label", nil, "label to set, as `NAME=VALUE`")
	}
	if schema.EndsJobs(operation) {
		f.DurationVar(&call.cancelAfter, "cancel-after", 0, "cancel jobs that still run after so long; default: wait for them")
	}
	return cmd
}

func (o *nodeOperation) run(cmd *cobra.Command, args []string) error {
	place, err := remote.ParsePlace(args[0])
	if err != nil {
		return err
	}
	if err := o.check(args[1]); err != nil {
		return cli.Usage(err)
	}
	o.key = cmp.Or(o.key, queue.NewKey(time.Now(), rand.Text()))
	if o.cancelAfter > 0 {
		o.body.OnJobs = &schema.OnJobs{CancelAfterSeconds: int(o.cancelAfter.Seconds())}
	}
	taken := operationReport{Format: "berth.operation/v1"}
	r := remote.Request{Method: http.MethodPost, Place: place, Path: "nodes/" + args[1] + "/operations", Key: o.key, Body: o.body}
	if err := o.send(cmd.Context(), r, &taken, "nothing was done; berth node list "+args[0]+" lists the members",
		"to learn whether it was taken"); err != nil {
		return err
	}
	if err := o.await(cmd.Context(), place, &taken); err != nil {
		return err
	}
	if err := o.output.Print(cmd.OutOrStdout(), taken); err != nil {
		return err
	}
	if taken.Status == "failed" || taken.Status == "expired" || o.wait > 0 && !taken.isFinal() {
		return cli.Exit(1)
	}
	return nil
}

// check returns an error if the call cannot be right.
func (o *nodeOperation) check(member string) error {
	switch {
	case !schema.ValidName(member):
		return fmt.Errorf("%q is not the name of a member; give one, such as worker-0", member)
	case o.body.Reason == "":
		return errors.New("--reason is missing: people read it beside the operation")
	case o.body.Operation == schema.OpLabel && len(o.body.Labels) == 0:
		return errors.New("--label is missing: give NAME=VALUE")
	}
	return nil
}

// await reads the operation until it is final, or until the time to wait is over.
func (o *nodeOperation) await(ctx context.Context, place remote.Place, taken *operationReport) error {
	for end := time.Now().Add(o.wait); !taken.isFinal() && time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		var now struct{ Status, Result string }
		r := remote.Request{Place: place, Path: "member-operations/" + taken.OperationID}
		if _, err := o.server.Do(ctx, r, &now); err != nil {
			return err
		}
		taken.Status, taken.Result = now.Status, now.Result
	}
	return nil
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
