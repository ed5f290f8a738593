// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 the suite asks for what a later version of MCP deprecates

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// picture is a PNG of one pixel, sound a WAV of no samples.
func picture() []byte {
	var b bytes.Buffer
	_ = png.Encode(&b, image.NewGray(image.Rect(0, 0, 1, 1))) // a buffer takes everything
	return b.Bytes()
}

func sound() []byte {
	b := append([]byte("RIFF"), 36, 0, 0, 0)
	b = append(b, "WAVEfmt "...)
	for _, v := range []any{uint32(16), uint16(1), uint16(1), uint32(8000), uint32(8000), uint16(1), uint16(8)} {
		b, _ = binary.Append(b, binary.LittleEndian, v) // fixed sizes
	}
	return append(b, "data\x00\x00\x00\x00"...)
}

var (
	aPicture  = &mcp.ImageContent{Data: picture(), MIMEType: "image/png"}
	aResource = &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "test://embedded-resource", MIMEType: "text/plain", Text: "This is an embedded resource"}}
)

func words(s string) *mcp.TextContent { return &mcp.TextContent{Text: s} }

func addTools(s *mcp.Server) {
	const anything = `{"type":"object"}`
	add := func(name, schema string, content ...mcp.Content) {
		s.AddTool(&mcp.Tool{Name: name, Description: "Fixture of the conformance suite", InputSchema: json.RawMessage(schema)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: content}, nil
			})
	}
	add("test_simple_text", anything, words("This is a simple text response for testing."))
	add("test_image_content", anything, aPicture)
	add("test_audio_content", anything, &mcp.AudioContent{Data: sound(), MIMEType: "audio/wav"})
	add("test_embedded_resource", anything, aResource)
	add("test_multiple_content_types", anything, words("Multiple content types test:"), aPicture, aResource)
	add("json_schema_2020_12_tool", `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
		"$defs":{"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
		"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"}},"additionalProperties":false}`, words("ok"))
	handle := func(name string, f mcp.ToolHandler) {
		s.AddTool(&mcp.Tool{Name: name, Description: "Fixture of the conformance suite", InputSchema: json.RawMessage(anything)}, f)
	}
	handle("test_error_handling", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{words("This tool intentionally returns an error for testing")}}, nil
	})
	// What follows needs a server that speaks unasked. It is here so that the suite meets the stack's answer and not a missing tool.
	handle("test_tool_with_logging", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for range 3 {
			_ = req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: "working"})
		}
		return &mcp.CallToolResult{Content: []mcp.Content{words("done")}}, nil
	})
	handle("test_tool_with_progress", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 3 {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: float64(50 * i), Total: 100})
		}
		return &mcp.CallToolResult{Content: []mcp.Content{words("done")}}, nil
	})
	handle("test_sampling", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_, err := req.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 1})
		return nil, fmt.Errorf("sampling: %w", err)
	})
	for _, name := range []string{"test_elicitation", "test_elicitation_sep1034_defaults", "test_elicitation_sep1330_enums"} {
		handle(name, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			_, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "?"})
			return nil, fmt.Errorf("elicitation: %w", err)
		})
	}
}

func addResources(s *mcp.Server) {
	read := func(c mcp.ResourceContents) mcp.ResourceHandler {
		return func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			own := c
			own.URI = req.Params.URI
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{&own}}, nil
		}
	}
	const static, binaryURI, watched = "test://static-text", "test://static-binary", "test://watched-resource"
	s.AddResource(&mcp.Resource{Name: "static-text", Description: "A static text", MIMEType: "text/plain", URI: static},
		read(mcp.ResourceContents{MIMEType: "text/plain", Text: "This is the content of the static text resource."}))
	s.AddResource(&mcp.Resource{Name: "static-binary", Description: "A static picture", MIMEType: "image/png", URI: binaryURI},
		read(mcp.ResourceContents{MIMEType: "image/png", Blob: picture()}))
	s.AddResource(&mcp.Resource{Name: "watched-resource", Description: "A text to subscribe to", MIMEType: "text/plain", URI: watched},
		read(mcp.ResourceContents{MIMEType: "text/plain", Text: "Watched resource content"}))
	s.AddResourceTemplate(&mcp.ResourceTemplate{Name: "template", Description: "A template", MIMEType: "application/json", URITemplate: "test://template/{id}/data"},
		func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(req.Params.URI, "test://template/"), "/data")
			text, err := json.Marshal(map[string]any{"id": id, "templateTest": true, "data": "Data for ID: " + id})
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, MIMEType: "application/json", Text: string(text)}}}, err
		})
}

func addPrompts(s *mcp.Server) {
	add := func(name string, arguments []string, content func(map[string]string) []mcp.Content) {
		p := &mcp.Prompt{Name: name, Description: "Fixture of the conformance suite"}
		for _, a := range arguments {
			p.Arguments = append(p.Arguments, &mcp.PromptArgument{Name: a, Description: "A test argument", Required: true})
		}
		s.AddPrompt(p, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			res := &mcp.GetPromptResult{Description: p.Description}
			for _, c := range content(req.Params.Arguments) {
				res.Messages = append(res.Messages, &mcp.PromptMessage{Role: "user", Content: c})
			}
			return res, nil
		})
	}
	add("test_simple_prompt", nil, func(map[string]string) []mcp.Content {
		return []mcp.Content{words("This is a simple prompt for testing.")}
	})
	add("test_prompt_with_arguments", []string{"arg1", "arg2"}, func(a map[string]string) []mcp.Content {
		return []mcp.Content{words(fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", a["arg1"], a["arg2"]))}
	})
	add("test_prompt_with_embedded_resource", []string{"resourceUri"}, func(a map[string]string) []mcp.Content {
		return []mcp.Content{
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: a["resourceUri"], MIMEType: "text/plain", Text: "Embedded resource content for testing."}},
			words("Please process the embedded resource above."),
		}
	})
	add("test_prompt_with_image", nil, func(map[string]string) []mcp.Content {
		return []mcp.Content{aPicture, words("Please analyze the image above.")}
	})
}
