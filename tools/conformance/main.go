// SPDX-License-Identifier: Apache-2.0

// Command conformance serves the fixtures that the official MCP conformance suite looks for, on the HTTP stack that the data
// plane and treaty proxy stand on, and runs a command against them: `make conformance` runs the suite. What the suite finds
// about the transport is true of every MCP server of this project; that is all the fixtures are for.
//
//	conformance COMMAND ARG…   {url} in an argument is replaced by the endpoint; exits as the command does
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/treaty-node/treaty/node/mcphttp"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		code = 1
	}
	os.Exit(code)
}

func run(command []string) (int, error) {
	if len(command) == 0 {
		return 2, errors.New("which command?")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 1, err
	}
	own := []string{"http://" + l.Addr().String(), strings.Replace("http://"+l.Addr().String(), "127.0.0.1", "localhost", 1)}
	server := &http.Server{Handler: handler(own), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }() // until Close
	defer server.Close()
	args := make([]string, len(command))
	for i, a := range command {
		args[i] = strings.ReplaceAll(a, "{url}", own[0]+"/mcp")
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // what the caller asked for
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		return exit.ExitCode(), nil
	}
	return 0, err
}

func handler(origins []string) http.Handler {
	return mcphttp.Pages(origins, mcphttp.DefaultMaxBody, mcphttp.Messages(fixtures(), mcphttp.Options{}))
}

// fixtures is the server that the suite describes.
func fixtures() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "treaty-conformance", Version: "1"}, &mcp.ServerOptions{
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}, nil
		},
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	addTools(s)
	addResources(s)
	addPrompts(s)
	return s
}
