<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="zh_CN" sourcelanguage="en">
<context>
    <name>Activity</name>
    <message>
        <source>step %1 of %2</source>
        <translation>第 %1 / %2 步</translation>
    </message>
    <message>
        <source>%1 left</source>
        <translation>还剩 %1</translation>
    </message>
</context>
<context>
    <name>ActivityPanel</name>
    <message>
        <source>Activity</source>
        <translation>活动</translation>
    </message>
    <message>
        <source>Nothing is running.</source>
        <translation>没有正在进行的运行。</translation>
    </message>
    <message>
        <source>New run</source>
        <translation>新建运行</translation>
    </message>
</context>
<context>
    <name>Answer</name>
    <message>
        <source>(empty)</source>
        <translation>（空）</translation>
    </message>
</context>
<context>
    <name>AnswerDialog</name>
    <message>
        <source>Let a bigger model answer</source>
        <translation>让更大的模型作答</translation>
    </message>
    <message>
        <source>A model on this computer answers every prompt of the data, and a smaller one can learn from that. Nothing is sent anywhere. A model can be wrong, so you review each row afterwards.</source>
        <translation>由本机上的模型回答数据中的每个提示词，较小的模型可以从中学习。不会向外发送任何内容。模型可能出错，因此之后由您逐行审阅。</translation>
    </message>
    <message>
        <source>Larger models answer better. One without a chat template can&apos;t do it.</source>
        <translation>模型越大，回答越好。没有对话模板的模型无法作答。</translation>
    </message>
    <message>
        <source>Also keep how likely the model finds other words</source>
        <translation>同时保存模型认为其他词有多大可能</translation>
    </message>
    <message>
        <source>A smaller model of the same family learns more from that. The file becomes larger.</source>
        <translation>同系列的较小模型能从中学到更多。文件会变大。</translation>
    </message>
    <message>
        <source>In tokens, about four letters each. Answers that would be longer are left out.</source>
        <translation>以词元计，每个约四个字母。更长的回答会被舍弃。</translation>
    </message>
    <message>
        <source>Longest answer</source>
        <translation>最长的回答</translation>
    </message>
    <message>
        <source>Write answers</source>
        <translation>生成回答</translation>
    </message>
    <message>
        <source>%1 of %2 prompts so far</source>
        <translation>目前已完成 %1/%2 个提示词</translation>
    </message>
    <message>
        <source>%1 of %2 prompts</source>
        <translation>%1/%2 个提示词</translation>
    </message>
    <message>
        <source>%1 answers per minute</source>
        <translation>每分钟 %1 个回答</translation>
    </message>
    <message numerus="yes">
        <source>%Ln answer(s) written. Prompts: %1.</source>
        <translation>
            <numerusform>已生成 %Ln 个回答，提示词共 %1 个。</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln left out.</source>
        <translation>
            <numerusform>舍弃了 %Ln 个。</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>AnswerHeading</name>
    <message>
        <source>Better answer</source>
        <translation>较好的回答</translation>
    </message>
    <message>
        <source>Worse answer</source>
        <translation>较差的回答</translation>
    </message>
    <message>
        <source>Good answer</source>
        <translation>好的回答</translation>
    </message>
    <message>
        <source>Bad answer</source>
        <translation>差的回答</translation>
    </message>
</context>
<context>
    <name>AnswerPair</name>
    <message>
        <source>Answer %1</source>
        <translation>回答 %1</translation>
    </message>
    <message>
        <source>%1: %2</source>
        <translation>%1：%2</translation>
    </message>
</context>
<context>
    <name>AnswerView</name>
    <message>
        <source>Trained model</source>
        <translation>训练后的模型</translation>
    </message>
    <message>
        <source>Before this run</source>
        <translation>本次运行之前</translation>
    </message>
    <message>
        <source>Show the thinking</source>
        <translation>显示思考过程</translation>
    </message>
    <message>
        <source>Copy</source>
        <translation>复制</translation>
    </message>
    <message>
        <source>Save as example…</source>
        <translation>保存为样本…</translation>
    </message>
    <message>
        <source>Thinking…</source>
        <translation>正在思考…</translation>
    </message>
    <message>
        <source>Loading the model…</source>
        <translation>正在加载模型…</translation>
    </message>
    <message>
        <source>Answers after the trained model…</source>
        <translation>将在训练后的模型之后回答…</translation>
    </message>
    <message>
        <source>Reading the question…</source>
        <translation>正在阅读问题…</translation>
    </message>
    <message>
        <source>The model gave no answer.</source>
        <translation>模型没有给出回答。</translation>
    </message>
    <message>
        <source>Stopped before the answer was complete. Regenerate asks again.</source>
        <translation>回答未完成就已停止。点“重新生成”可再次提问。</translation>
    </message>
    <message numerus="yes">
        <source>%n token(s)</source>
        <translation>
            <numerusform>%n 个词元</numerusform>
        </translation>
    </message>
    <message>
        <source>first after %1 s</source>
        <translation>%1 秒后开始</translation>
    </message>
    <message>
        <source>%1 tokens/s</source>
        <translation>%1 词元/秒</translation>
    </message>
    <message>
        <source>stopped at the longest answer</source>
        <translation>已达到最长回答限制</translation>
    </message>
    <message>
        <source>stopped</source>
        <translation>已停止</translation>
    </message>
    <message>
        <source>Hide the thinking</source>
        <translation>收起思考过程</translation>
    </message>
</context>
<context>
    <name>App</name>
    <message>
        <source>The language changes once this is done: %1</source>
        <translation>完成后切换语言：%1</translation>
    </message>
</context>
<context>
    <name>Banner</name>
    <message>
        <source>Details</source>
        <translation>详细信息</translation>
    </message>
    <message>
        <source>Dismiss</source>
        <translation>关闭提示</translation>
    </message>
</context>
<context>
    <name>Beginning</name>
    <message>
        <source>The beginning of the file</source>
        <translation>文件开头</translation>
    </message>
</context>
<context>
    <name>ChartCard</name>
    <message>
        <source>Step</source>
        <translation>步</translation>
    </message>
    <message>
        <source>chart menu</source>
        <translation>图表菜单</translation>
    </message>
    <message>
        <source>Copy image</source>
        <translation>复制图片</translation>
    </message>
    <message>
        <source>Save CSV…</source>
        <translation>保存 CSV…</translation>
    </message>
    <message>
        <source>Show as table</source>
        <translation>以表格显示</translation>
    </message>
    <message>
        <source>Full screen</source>
        <translation>全屏</translation>
    </message>
    <message>
        <source>Show all</source>
        <translation>显示全部</translation>
    </message>
    <message>
        <source>Save CSV</source>
        <translation>保存 CSV</translation>
    </message>
</context>
<context>
    <name>ChartTableDialog</name>
    <message>
        <source>Line</source>
        <translation>曲线</translation>
    </message>
    <message>
        <source>Value</source>
        <translation>值</translation>
    </message>
</context>
<context>
    <name>Charts</name>
    <message>
        <source>Drag to zoom into an area. Hold Shift to move instead. Double-click to show everything.
Turn the wheel to zoom after a click on the chart, or with Ctrl held.
Click a symbol in the legend to hide its line.</source>
        <translation>拖动可放大所选区域，按住 Shift 拖动可平移，双击恢复全部显示。
点击图表后滚动滚轮可缩放，也可按住 Ctrl 滚动。
点击图例中的图标可隐藏对应曲线。</translation>
    </message>
    <message>
        <source>Time (s)</source>
        <translation>时间（秒）</translation>
    </message>
    <message>
        <source>Time (min)</source>
        <translation>时间（分钟）</translation>
    </message>
    <message>
        <source>Time (h)</source>
        <translation>时间（小时）</translation>
    </message>
</context>
<context>
    <name>Chat</name>
    <message>
        <source>Blind vote on %1</source>
        <translation>盲测投票：%1</translation>
    </message>
    <message>
        <source>Chat with %1, answering</source>
        <translation>与 %1 对话，正在回答</translation>
    </message>
    <message>
        <source>Chat with %1, ready</source>
        <translation>与 %1 对话，已就绪</translation>
    </message>
    <message>
        <source>Model of %1, ready</source>
        <translation>%1 的模型已就绪</translation>
    </message>
    <message>
        <source>Chat with %1, loading</source>
        <translation>与 %1 对话，正在加载</translation>
    </message>
</context>
<context>
    <name>ChatPage</name>
    <message>
        <source>Ask what you trained it for</source>
        <translation>问问它学到的内容</translation>
    </message>
    <message>
        <source>Questions like those in your data show best what the model has learned.</source>
        <translation>与训练数据相似的问题最能看出模型学到了什么。</translation>
    </message>
    <message>
        <source>Back to the run</source>
        <translation>返回运行</translation>
    </message>
    <message>
        <source>Checkpoint that answers</source>
        <translation>用于回答的检查点</translation>
    </message>
    <message>
        <source>Compare with the model before this run</source>
        <translation>与本次运行之前的模型对比</translation>
    </message>
    <message>
        <source>Blind vote</source>
        <translation>盲测投票</translation>
    </message>
    <message>
        <source>Settings</source>
        <translation>设置</translation>
    </message>
    <message>
        <source>Try %1</source>
        <translation>试用 %1</translation>
    </message>
    <message>
        <source>Ask this question again?</source>
        <translation>重新提出这个问题？</translation>
    </message>
    <message>
        <source>Questions after it that will be removed, with their answers: %1.</source>
        <translation>其后的问题及回答将被移除，问题数：%1。</translation>
    </message>
    <message>
        <source>Ask and remove them</source>
        <translation>提问并移除</translation>
    </message>
    <message>
        <source>The model answered: %1</source>
        <translation>模型回答：%1</translation>
    </message>
    <message>
        <source>Try again</source>
        <translation>重试</translation>
    </message>
    <message>
        <source>Answer on the CPU</source>
        <translation>用 CPU 回答</translation>
    </message>
    <message>
        <source>Open Environment</source>
        <translation>打开环境页面</translation>
    </message>
    <message>
        <source>Restore it</source>
        <translation>恢复</translation>
    </message>
    <message>
        <source>Copied</source>
        <translation>已复制</translation>
    </message>
    <message>
        <source>Add the conversation to a data file</source>
        <translation>将对话添加到数据文件</translation>
    </message>
    <message>
        <source>Saved as row %1 of %2</source>
        <translation>已保存为 %2 的第 %1 行</translation>
    </message>
    <message>
        <source>Delete this conversation?</source>
        <translation>删除此对话？</translation>
    </message>
    <message>
        <source>This can’t be undone. Examples that were saved from it stay.</source>
        <translation>此操作无法撤销。已保存的样本会保留。</translation>
    </message>
    <message>
        <source>Delete the conversation</source>
        <translation>删除对话</translation>
    </message>
    <message>
        <source>Loading the model…</source>
        <translation>正在加载模型…</translation>
    </message>
    <message>
        <source>GPU</source>
        <translation>GPU</translation>
    </message>
    <message>
        <source>CPU</source>
        <translation>CPU</translation>
    </message>
    <message>
        <source>Ready on the %1, step %2</source>
        <translation>已就绪：%1，第 %2 步</translation>
    </message>
    <message>
        <source>Not loaded</source>
        <translation>未加载</translation>
    </message>
</context>
<context>
    <name>CheckRow</name>
    <message>
        <source>%1: %2</source>
        <translation>%1：%2</translation>
    </message>
    <message>
        <source>%1 (%2)</source>
        <translation>%1（%2）</translation>
    </message>
    <message>
        <source>Offline. This fix needs a download.</source>
        <translation>离线。此修复需要下载。</translation>
    </message>
    <message>
        <source>Wait until the current task is done.</source>
        <translation>请等当前任务完成。</translation>
    </message>
</context>
<context>
    <name>CheckpointsTable</name>
    <message>
        <source>Step</source>
        <translation>步</translation>
    </message>
    <message>
        <source>When</source>
        <translation>时间</translation>
    </message>
    <message>
        <source>Size</source>
        <translation>大小</translation>
    </message>
    <message>
        <source>Took</source>
        <translation>用时</translation>
    </message>
    <message>
        <source>Folder</source>
        <translation>文件夹</translation>
    </message>
</context>
<context>
    <name>ChecksCard</name>
    <message>
        <source>Check now</source>
        <translation>立即检查</translation>
    </message>
    <message>
        <source>Checking…</source>
        <translation>正在检查…</translation>
    </message>
    <message>
        <source>No checks have run yet.</source>
        <translation>还没有运行过检查。</translation>
    </message>
    <message numerus="yes">
        <source>All %n check(s) passed</source>
        <translation>
            <numerusform>%n 项检查全部通过</numerusform>
        </translation>
    </message>
    <message>
        <source>Show less</source>
        <translation>收起</translation>
    </message>
    <message>
        <source>Show all</source>
        <translation>显示全部</translation>
    </message>
    <message>
        <source>Checks: %1</source>
        <translation>检查：%1</translation>
    </message>
</context>
<context>
    <name>ChooseProfileDialog</name>
    <message>
        <source>Choose a PyTorch version</source>
        <translation>选择 PyTorch 版本</translation>
    </message>
    <message>
        <source>Recommended for this computer</source>
        <translation>推荐用于这台电脑</translation>
    </message>
    <message>
        <source>%1: %2</source>
        <translation>%1：%2</translation>
    </message>
    <message>
        <source>GTX 1000 to RTX 4000 and data center GPUs up to Hopper</source>
        <translation>GTX 1000 到 RTX 4000，以及 Hopper 及更早的数据中心 GPU</translation>
    </message>
    <message>
        <source>Works on every computer. Practical for very small models only.</source>
        <translation>任何电脑都能用，但只适合很小的模型。</translation>
    </message>
    <message>
        <source>RTX 5000 and other Blackwell GPUs, RTX 2000 and newer</source>
        <translation>RTX 5000 及其他 Blackwell GPU，RTX 2000 及更新的 GPU</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Use this</source>
        <translation>使用这个</translation>
    </message>
</context>
<context>
    <name>CloseWindowDialog</name>
    <message>
        <source>Close the window</source>
        <translation>关闭窗口</translation>
    </message>
    <message>
        <source>It can continue in the background. Open Tunesmith again to see its progress.</source>
        <translation>它可以在后台继续。再次打开 Tunesmith 即可查看进度。</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Stop and save</source>
        <translation>停止并保存</translation>
    </message>
    <message>
        <source>Keep running in the background</source>
        <translation>在后台继续运行</translation>
    </message>
    <message>
        <source>Stop and close</source>
        <translation>停止并关闭</translation>
    </message>
    <message>
        <source>%1 is still running</source>
        <translation>%1 仍在运行</translation>
    </message>
    <message numerus="yes">
        <source>%n run(s) are still running</source>
        <translation>
            <numerusform>还有 %n 个运行在进行</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%n operation(s) end with the window</source>
        <translation>
            <numerusform>关闭窗口会结束 %n 项操作</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>and %n more</source>
        <translation>
            <numerusform>以及另外 %n 项</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>ColumnChoice</name>
    <message>
        <source>For example: %1</source>
        <translation>例如：%1</translation>
    </message>
</context>
<context>
    <name>ColumnMappingDialog</name>
    <message>
        <source>Map columns</source>
        <translation>指定各列</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Choose what each column holds. What could be guessed is filled in.</source>
        <translation>请选择每一列的内容。能推测的已预先填好。</translation>
    </message>
    <message>
        <source>Each row holds</source>
        <translation>每行内容</translation>
    </message>
    <message>
        <source>None</source>
        <translation>无</translation>
    </message>
    <message>
        <source>Choose a column</source>
        <translation>选择列</translation>
    </message>
    <message>
        <source>Choose a column for %1.</source>
        <translation>请为“%1”选择一列。</translation>
    </message>
    <message>
        <source>%1 is chosen twice.</source>
        <translation>%1 被选了两次。</translation>
    </message>
</context>
<context>
    <name>ColumnQuestion</name>
    <message>
        <source>Which column is the prompt, which the better and which the worse answer?</source>
        <translation>哪一列是提示词，哪一列是较好的回答，哪一列是较差的回答？</translation>
    </message>
    <message>
        <source>Which column is the prompt, which the response, and which the label?</source>
        <translation>哪一列是提示词，哪一列是回答，哪一列是标签？</translation>
    </message>
    <message>
        <source>Which column is the text, and which the label?</source>
        <translation>哪一列是文本，哪一列是标签？</translation>
    </message>
    <message>
        <source>Which column is the prompt, which holds the steps, and which says whether they are right?</source>
        <translation>哪一列是提示词，哪一列是步骤，哪一列说明步骤是否正确？</translation>
    </message>
    <message>
        <source>Which column is the text?</source>
        <translation>哪一列是文本？</translation>
    </message>
    <message>
        <source>Which column is the prompt, and which the response?</source>
        <translation>哪一列是提示词，哪一列是回答？</translation>
    </message>
    <message>
        <source>Which column says whether an answer is good or bad?</source>
        <translation>哪一列说明回答是好是坏？</translation>
    </message>
    <message>
        <source>Choose a column</source>
        <translation>选择一列</translation>
    </message>
    <message>
        <source>Use these columns</source>
        <translation>使用这些列</translation>
    </message>
    <message>
        <source>Other columns…</source>
        <translation>其他列…</translation>
    </message>
</context>
<context>
    <name>CommandPalette</name>
    <message>
        <source>Commands</source>
        <translation>命令</translation>
    </message>
    <message>
        <source>Type a command or the name of a run</source>
        <translation>输入命令或运行的名称</translation>
    </message>
    <message>
        <source>Find a command</source>
        <translation>查找命令</translation>
    </message>
    <message>
        <source>No matching commands or runs.</source>
        <translation>没有匹配的命令或运行。</translation>
    </message>
</context>
<context>
    <name>CompareDialog</name>
    <message>
        <source>Compare runs</source>
        <translation>比较运行</translation>
    </message>
    <message>
        <source>Loss, smoothed, with evaluation loss as dots</source>
        <translation>平滑后的损失，圆点为评估损失</translation>
    </message>
    <message>
        <source>Loss of the compared runs</source>
        <translation>所比较运行的损失</translation>
    </message>
    <message>
        <source>Loss</source>
        <translation>损失</translation>
    </message>
    <message>
        <source>Reward, smoothed, with held-out reward as dots</source>
        <translation>奖励（平滑），圆点为留出奖励</translation>
    </message>
    <message>
        <source>Reward of the compared runs</source>
        <translation>所比较运行的奖励</translation>
    </message>
    <message>
        <source>Reward</source>
        <translation>奖励</translation>
    </message>
    <message>
        <source>Settings that differ</source>
        <translation>不同的设置</translation>
    </message>
    <message>
        <source>Setting</source>
        <translation>设置</translation>
    </message>
    <message>
        <source>All settings are the same</source>
        <translation>所有设置都相同</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>关闭</translation>
    </message>
    <message>
        <source>%1, evaluation</source>
        <translation>%1，评估</translation>
    </message>
</context>
<context>
    <name>Composer</name>
    <message>
        <source>Sending replaces this question and what follows it.</source>
        <translation>发送后将替换这个问题及其后的内容。</translation>
    </message>
    <message>
        <source>Keep it</source>
        <translation>保留原问题</translation>
    </message>
    <message>
        <source>Question</source>
        <translation>问题</translation>
    </message>
    <message>
        <source>Ask the trained model. Shift+Enter begins a new line.</source>
        <translation>向训练后的模型提问。按 Shift+Enter 换行。</translation>
    </message>
    <message>
        <source>Send</source>
        <translation>发送</translation>
    </message>
    <message>
        <source>Stop</source>
        <translation>停止</translation>
    </message>
</context>
<context>
    <name>ComputerStep</name>
    <message>
        <source>Change version…</source>
        <translation>更换版本…</translation>
    </message>
    <message>
        <source>Check again</source>
        <translation>重新检查</translation>
    </message>
    <message>
        <source>Looking at this computer…</source>
        <translation>正在查看这台电脑…</translation>
    </message>
</context>
<context>
    <name>ConfirmDialog</name>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
</context>
<context>
    <name>ConversationList</name>
    <message>
        <source>New</source>
        <translation>新建</translation>
    </message>
    <message>
        <source>New conversation</source>
        <translation>新对话</translation>
    </message>
    <message>
        <source>Delete this conversation</source>
        <translation>删除此对话</translation>
    </message>
    <message>
        <source>Conversations</source>
        <translation>对话</translation>
    </message>
    <message>
        <source>Name of this conversation</source>
        <translation>此对话的名称</translation>
    </message>
    <message>
        <source>Rename this conversation</source>
        <translation>重命名此对话</translation>
    </message>
</context>
<context>
    <name>CopyName</name>
    <message>
        <source>JSON Lines (*.jsonl)</source>
        <translation>JSON Lines (*.jsonl)</translation>
    </message>
    <message>
        <source>CSV, UTF-8 (*.csv)</source>
        <translation>CSV，UTF-8 (*.csv)</translation>
    </message>
    <message>
        <source>Parquet (*.parquet)</source>
        <translation>Parquet (*.parquet)</translation>
    </message>
    <message>
        <source>This copy can&apos;t be saved as %1. It can end in %2.</source>
        <translation>此副本不能存为 %1。可用的扩展名：%2。</translation>
    </message>
    <message>
        <source>A file with this name exists and will be replaced.</source>
        <translation>同名文件已存在，将被替换。</translation>
    </message>
    <message>
        <source>Save as JSON Lines?</source>
        <translation>保存为 JSON Lines？</translation>
    </message>
    <message>
        <source>Save as %1</source>
        <translation>保存为 %1</translation>
    </message>
</context>
<context>
    <name>Core</name>
    <message>
        <source>PyTorch has no CUDA support</source>
        <translation>PyTorch 不支持 CUDA</translation>
    </message>
    <message>
        <source>The CPU build of PyTorch is installed although this computer has an NVIDIA GPU.</source>
        <translation>这台电脑有 NVIDIA GPU，但装的是 CPU 版的 PyTorch。</translation>
    </message>
    <message>
        <source>Repair the training environment: it installs the CUDA build.</source>
        <translation>请修复训练环境：会装上 CUDA 版。</translation>
    </message>
    <message>
        <source>No NVIDIA driver or GPU found</source>
        <translation>没有找到 NVIDIA 驱动或 GPU</translation>
    </message>
    <message>
        <source>The NVIDIA driver is not installed, or this process can&apos;t see the GPU.</source>
        <translation>没有安装 NVIDIA 驱动，或者本进程看不到 GPU。</translation>
    </message>
    <message>
        <source>Install the NVIDIA driver and restart the computer, or choose the CPU under Hardware.</source>
        <translation>请安装 NVIDIA 驱动并重启电脑，或在“硬件”里选择 CPU。</translation>
    </message>
    <message>
        <source>The NVIDIA driver is too old</source>
        <translation>NVIDIA 驱动太旧</translation>
    </message>
    <message>
        <source>The installed driver is older than this PyTorch build needs.</source>
        <translation>已安装的驱动低于这个 PyTorch 版本的要求。</translation>
    </message>
    <message>
        <source>Install a newer NVIDIA driver and restart the computer.</source>
        <translation>请安装更新的 NVIDIA 驱动并重启电脑。</translation>
    </message>
    <message>
        <source>This PyTorch build does not support the GPU</source>
        <translation>这个 PyTorch 版本不支持该 GPU</translation>
    </message>
    <message>
        <source>This PyTorch build does not support this GPU generation. The card is too new or too old for it.</source>
        <translation>PyTorch 里没有这一代 GPU 的代码：显卡对它来说太新或太旧。</translation>
    </message>
    <message>
        <source>Repair the training environment: it chooses the build for this GPU.</source>
        <translation>请修复训练环境：会选用适合这块 GPU 的版本。</translation>
    </message>
    <message>
        <source>A CUDA library is missing</source>
        <translation>缺少 CUDA 库</translation>
    </message>
    <message>
        <source>cuDNN, cuBLAS or NVRTC can&apos;t be loaded.</source>
        <translation>无法加载 cuDNN、cuBLAS 或 NVRTC。</translation>
    </message>
    <message>
        <source>Repair the training environment.</source>
        <translation>请修复训练环境。</translation>
    </message>
    <message>
        <source>A Windows library can&apos;t be loaded</source>
        <translation>无法加载 Windows 库</translation>
    </message>
    <message>
        <source>PyTorch needs the Microsoft Visual C++ runtime, which is missing or too old.</source>
        <translation>PyTorch 需要 Microsoft Visual C++ 运行库，但它缺失或太旧。</translation>
    </message>
    <message>
        <source>Install the Microsoft Visual C++ 2015-2022 x64 runtime, then try again.</source>
        <translation>请安装 Microsoft Visual C++ 2015-2022 x64 运行库，然后重试。</translation>
    </message>
    <message>
        <source>A library was built for another NumPy</source>
        <translation>有库是为另一个 NumPy 版本编译的</translation>
    </message>
    <message>
        <source>A package built for NumPy 1 runs with NumPy 2.</source>
        <translation>为 NumPy 1 编译的包正在与 NumPy 2 一起使用。</translation>
    </message>
    <message>
        <source>Triton is missing or has the wrong version</source>
        <translation>缺少 Triton，或版本不对</translation>
    </message>
    <message>
        <source>Fused kernels need the Triton version that belongs to the installed PyTorch.</source>
        <translation>融合内核需要与已安装 PyTorch 配套的 Triton 版本。</translation>
    </message>
    <message>
        <source>Repair the training environment, or train without fused kernels.</source>
        <translation>请修复训练环境，或不用融合内核训练。</translation>
    </message>
    <message>
        <source>Triton can&apos;t compile for this GPU</source>
        <translation>Triton 无法为这块 GPU 编译</translation>
    </message>
    <message>
        <source>This GPU generation is not supported by Triton.</source>
        <translation>Triton 不支持这一代 GPU。</translation>
    </message>
    <message>
        <source>Train without fused kernels: PyTorch does the same work.</source>
        <translation>请不用融合内核训练：PyTorch 会完成同样的计算。</translation>
    </message>
    <message>
        <source>The CUDA assembler does not match</source>
        <translation>CUDA 汇编器不匹配</translation>
    </message>
    <message>
        <source>ptxas is missing, too old for this GPU, or taken from another CUDA version.</source>
        <translation>ptxas 缺失、对这块 GPU 来说太旧，或来自另一个 CUDA 版本。</translation>
    </message>
    <message>
        <source>Repair the training environment and clear the compile caches.</source>
        <translation>请修复训练环境并清空编译缓存。</translation>
    </message>
    <message>
        <source>Triton can&apos;t build its launcher</source>
        <translation>Triton 无法编译它的启动器</translation>
    </message>
    <message>
        <source>The Python installation is missing headers or libraries that Triton needs to compile.</source>
        <translation>这个 Python 缺少 Triton 编译所需的头文件或库。</translation>
    </message>
    <message>
        <source>Repair the training environment with a full Python.</source>
        <translation>请用完整的 Python 修复训练环境。</translation>
    </message>
    <message>
        <source>The variable CC is wrong</source>
        <translation>环境变量 CC 有误</translation>
    </message>
    <message>
        <source>CC names a folder or a compiler that does not work.</source>
        <translation>CC 指向一个文件夹，或一个不能用的编译器。</translation>
    </message>
    <message>
        <source>Remove the variable CC, then start again.</source>
        <translation>请删除环境变量 CC，然后重新开始。</translation>
    </message>
    <message>
        <source>A kernel got mixed number formats</source>
        <translation>内核遇到了混用的数值格式</translation>
    </message>
    <message>
        <source>A fused kernel was given half and single precision together.</source>
        <translation>融合内核同时收到了半精度和单精度的数据。</translation>
    </message>
    <message>
        <source>Train without fused kernels and send us the report.</source>
        <translation>请不用融合内核训练，并把报告发给我们。</translation>
    </message>
    <message>
        <source>A C++ compiler is missing</source>
        <translation>缺少 C++ 编译器</translation>
    </message>
    <message>
        <source>torch.compile is turned on and looks for cl.exe.</source>
        <translation>torch.compile 已打开，正在寻找 cl.exe。</translation>
    </message>
    <message>
        <source>Turn torch.compile off. Tunesmith does not need it.</source>
        <translation>请关闭 torch.compile，Tunesmith 不需要它。</translation>
    </message>
    <message>
        <source>The 4-bit library can&apos;t be loaded</source>
        <translation>无法加载 4 位量化库</translation>
    </message>
    <message>
        <source>bitsandbytes has no library for this CUDA version, or its GPU library can&apos;t be loaded.</source>
        <translation>bitsandbytes 没有适合这个 CUDA 版本的库，或其 GPU 库无法加载。</translation>
    </message>
    <message>
        <source>Repair the training environment, or choose LoRA without 4-bit.</source>
        <translation>请修复训练环境，或选择不带 4 位量化的 LoRA。</translation>
    </message>
    <message>
        <source>flash-attn is missing or does not match</source>
        <translation>flash-attn 缺失或不匹配</translation>
    </message>
    <message>
        <source>The model needs flash-attn, which is missing or built for another PyTorch.</source>
        <translation>模型要求 flash-attn，但它没有安装，或是为另一个 PyTorch 编译的。</translation>
    </message>
    <message>
        <source>Choose the standard attention. Tunesmith does not need flash-attn.</source>
        <translation>请选择标准注意力；Tunesmith 不需要 flash-attn。</translation>
    </message>
    <message>
        <source>PyTorch is too old</source>
        <translation>PyTorch 太旧</translation>
    </message>
    <message>
        <source>The installed transformers needs PyTorch 2.6 or newer.</source>
        <translation>已安装的 transformers 需要 PyTorch 2.6 或更新版本。</translation>
    </message>
    <message>
        <source>The model is newer than the environment</source>
        <translation>模型比环境新</translation>
    </message>
    <message>
        <source>The installed transformers does not support this type of model.</source>
        <translation>已安装的 transformers 不认识这类模型。</translation>
    </message>
    <message>
        <source>Choose another model, or update the training environment.</source>
        <translation>请选择别的模型，或更新训练环境。</translation>
    </message>
    <message>
        <source>The training libraries do not match each other</source>
        <translation>训练所用的库彼此不匹配</translation>
    </message>
    <message>
        <source>A library was given an argument that its version does not support.</source>
        <translation>有库收到了其版本不认识的参数。</translation>
    </message>
    <message>
        <source>The LoRA target modules do not exist in this model</source>
        <translation>模型里没有指定的 LoRA 目标模块</translation>
    </message>
    <message>
        <source>None of the named target modules is a linear layer of the base model.</source>
        <translation>指定的目标模块都不是基础模型的线性层。</translation>
    </message>
    <message>
        <source>Set target modules to &quot;all-linear&quot;, or name layers that the model has.</source>
        <translation>请把目标模块设为 &quot;all-linear&quot;，或填写模型里存在的层。</translation>
    </message>
    <message>
        <source>The tokenizer can&apos;t be loaded</source>
        <translation>无法加载分词器</translation>
    </message>
    <message>
        <source>The tokenizer needs a library that is missing.</source>
        <translation>分词器需要的库缺失。</translation>
    </message>
    <message>
        <source>The GPU memory is full</source>
        <translation>显存已满</translation>
    </message>
    <message>
        <source>The model, the batch and the optimizer need more memory than the GPU has free.</source>
        <translation>模型、批次和优化器需要的显存超过了 GPU 的空闲显存。</translation>
    </message>
    <message>
        <source>Lower the micro-batch size or the context length, switch on activation checkpointing, or use a 4-bit base.</source>
        <translation>请减小微批次大小或上下文长度，打开激活检查点，或使用 4 位的基础模型。</translation>
    </message>
    <message>
        <source>The loss is not a number</source>
        <translation>损失不是有效数值</translation>
    </message>
    <message>
        <source>The numbers overflowed: the learning rate is too high for this data or number format.</source>
        <translation>数值溢出：对这份数据或数值格式来说，学习率太高。</translation>
    </message>
    <message>
        <source>A GPU kernel read outside its memory</source>
        <translation>GPU 内核访问了自己内存之外的地址</translation>
    </message>
    <message>
        <source>A CUDA kernel failed, most often because of packing with an attention that does not support it.</source>
        <translation>CUDA 内核出错，最常见的原因是打包样本时用了不支持打包的注意力。</translation>
    </message>
    <message>
        <source>Parts of the model are on different devices</source>
        <translation>模型的各部分在不同的设备上</translation>
    </message>
    <message>
        <source>Tensors were spread over several devices.</source>
        <translation>张量分散到了多个设备上。</translation>
    </message>
    <message>
        <source>Choose one GPU under Hardware.</source>
        <translation>请在“硬件”里只选一块 GPU。</translation>
    </message>
    <message>
        <source>A column is missing in the data</source>
        <translation>数据缺少一列</translation>
    </message>
    <message>
        <source>A row is missing a column of the column mapping.</source>
        <translation>有一行缺少列映射中指定的列。</translation>
    </message>
    <message>
        <source>Map the columns again, or correct the row.</source>
        <translation>请重新指定各列，或改正这一行。</translation>
    </message>
    <message>
        <source>The data file can&apos;t be read</source>
        <translation>无法读取数据文件</translation>
    </message>
    <message>
        <source>The file is malformed, has another encoding, or is not the format that its name says.</source>
        <translation>文件内容有误、编码不同，或格式与文件名不符。</translation>
    </message>
    <message>
        <source>Correct the named line, or choose another file.</source>
        <translation>请改正指出的那一行，或选择别的文件。</translation>
    </message>
    <message>
        <source>The data file is not UTF-8</source>
        <translation>数据文件不是 UTF-8 编码</translation>
    </message>
    <message>
        <source>The program that wrote the file used an older encoding, as spreadsheets often do.</source>
        <translation>写出该文件的程序用了较旧的编码，表格软件常常如此。</translation>
    </message>
    <message>
        <source>Choose its encoding under Text encoding, or save it as UTF-8.</source>
        <translation>请在“文本编码”中选择它的编码，或将文件另存为 UTF-8。</translation>
    </message>
    <message>
        <source>The tokenizer has no chat template</source>
        <translation>分词器没有对话模板</translation>
    </message>
    <message>
        <source>The model folder has no chat template, so chats can&apos;t be used. It may be a base model.</source>
        <translation>模型文件夹中没有对话模板，因此无法使用对话数据。它可能是基础模型。</translation>
    </message>
    <message>
        <source>A file that the model needs is missing, cut short or not what its name says.</source>
        <translation>模型需要的某个文件缺失、被截断，或与文件名不符。</translation>
    </message>
    <message>
        <source>Download the model again, or choose another folder.</source>
        <translation>请重新下载模型，或选择别的文件夹。</translation>
    </message>
    <message>
        <source>You need access to this model</source>
        <translation>需要获得此模型的访问权限</translation>
    </message>
    <message>
        <source>The model hub can&apos;t be reached</source>
        <translation>无法连接模型站</translation>
    </message>
    <message>
        <source>There is no network, or the hub did not answer.</source>
        <translation>没有网络，或模型站没有回应。</translation>
    </message>
    <message>
        <source>Check the network, or choose a model folder on this computer.</source>
        <translation>请检查网络，或选择这台电脑上的模型文件夹。</translation>
    </message>
    <message>
        <source>Set the proxy under Settings &gt; Network, or choose a model folder on this computer.</source>
        <translation>请在“设置 &gt; 网络”中设置代理，或选择这台电脑上的模型文件夹。</translation>
    </message>
    <message>
        <source>Windows refused a symbolic link</source>
        <translation>Windows 拒绝创建符号链接</translation>
    </message>
    <message>
        <source>The download cache uses symbolic links, which need extra rights on Windows.</source>
        <translation>下载缓存要用符号链接，这在 Windows 上需要特权。</translation>
    </message>
    <message>
        <source>Turn on Windows developer mode, or choose a model folder on this computer.</source>
        <translation>请打开 Windows 开发者模式，或选择这台电脑上的模型文件夹。</translation>
    </message>
    <message>
        <source>The disk is full</source>
        <translation>磁盘已满</translation>
    </message>
    <message>
        <source>There is not enough free space on the drive.</source>
        <translation>磁盘上的可用空间不够。</translation>
    </message>
    <message>
        <source>Free some space or choose another drive, then try again.</source>
        <translation>请腾出一些空间或换一个磁盘，然后重试。</translation>
    </message>
    <message>
        <source>The Windows page file is too small</source>
        <translation>Windows 页面文件太小</translation>
    </message>
    <message>
        <source>Windows could not reserve enough memory.</source>
        <translation>Windows 无法保留足够的内存。</translation>
    </message>
    <message>
        <source>Let Windows manage the size of the page file, then restart the computer.</source>
        <translation>请让 Windows 自动管理页面文件大小，然后重启电脑。</translation>
    </message>
    <message>
        <source>A path is too long</source>
        <translation>路径太长</translation>
    </message>
    <message>
        <source>The system refuses paths of this length.</source>
        <translation>系统不接受这么长的路径。</translation>
    </message>
    <message>
        <source>Choose a folder with a shorter path.</source>
        <translation>请选择路径更短的文件夹。</translation>
    </message>
    <message>
        <source>A path contains letters that a library can&apos;t handle</source>
        <translation>路径里有某个库不支持的字符</translation>
    </message>
    <message>
        <source>A library fails with folder names outside the basic Latin letters.</source>
        <translation>有库不能处理基本拉丁字母以外的文件夹名。</translation>
    </message>
    <message>
        <source>Choose a folder whose path has Latin letters, digits and no spaces.</source>
        <translation>请选择路径只含拉丁字母和数字、没有空格的文件夹。</translation>
    </message>
    <message>
        <source>A file or folder can&apos;t be written or read</source>
        <translation>无法读写某个文件或文件夹</translation>
    </message>
    <message>
        <source>The permission is missing, the folder is read-only, or a virus scanner holds the file.</source>
        <translation>没有权限、文件夹只读，或杀毒软件占用了文件。</translation>
    </message>
    <message>
        <source>Choose a folder that you can write to, or allow Tunesmith in the virus scanner.</source>
        <translation>请选择你有权写入的文件夹，或在杀毒软件里允许 Tunesmith。</translation>
    </message>
    <message>
        <source>A text could not be decoded</source>
        <translation>无法解码文本</translation>
    </message>
    <message>
        <source>A program expected another text encoding.</source>
        <translation>程序需要的是另一种文本编码。</translation>
    </message>
    <message>
        <source>Save the file as UTF-8, then try again.</source>
        <translation>请把文件存为 UTF-8，然后重试。</translation>
    </message>
    <message>
        <source>Worker processes failed to start</source>
        <translation>工作进程未能启动</translation>
    </message>
    <message>
        <source>Windows starts worker processes in a way that this library did not expect.</source>
        <translation>Windows 启动工作进程的方式与这个库预期的不同。</translation>
    </message>
    <message>
        <source>Turn worker processes off. Tunesmith does not need them.</source>
        <translation>请不要使用工作进程；Tunesmith 不需要。</translation>
    </message>
    <message>
        <source>Several processes are not supported here</source>
        <translation>这里不支持多进程</translation>
    </message>
    <message>
        <source>PyTorch for Windows is missing a part that several training processes need.</source>
        <translation>Windows 版 PyTorch 缺少多个训练进程所需的部分。</translation>
    </message>
    <message>
        <source>Use one GPU, or run under WSL.</source>
        <translation>请使用一块 GPU，或在 WSL 中运行。</translation>
    </message>
    <message>
        <source>WSL does not see the GPU</source>
        <translation>WSL 看不到 GPU</translation>
    </message>
    <message>
        <source>The NVIDIA library of the Windows driver is not visible inside WSL.</source>
        <translation>在 WSL 里看不到 Windows 驱动的 NVIDIA 库。</translation>
    </message>
    <message>
        <source>Update the NVIDIA driver on Windows, then run wsl --update.</source>
        <translation>请更新 Windows 上的 NVIDIA 驱动，然后运行 wsl --update。</translation>
    </message>
    <message>
        <source>WSL can&apos;t be used</source>
        <translation>无法使用 WSL</translation>
    </message>
    <message>
        <source>The Windows Subsystem for Linux is not installed or can&apos;t start.</source>
        <translation>适用于 Linux 的 Windows 子系统没有安装，或无法启动。</translation>
    </message>
    <message>
        <source>Install or update WSL.</source>
        <translation>请安装或更新 WSL。</translation>
    </message>
    <message>
        <source>A setting is not valid</source>
        <translation>某项设置无效</translation>
    </message>
    <message>
        <source>A value of the run spec is missing, of the wrong type or out of range.</source>
        <translation>运行配置中有值缺失、类型不对或超出范围。</translation>
    </message>
    <message>
        <source>Correct the named setting.</source>
        <translation>请改正指出的设置。</translation>
    </message>
    <message>
        <source>The run spec is from a newer Tunesmith</source>
        <translation>运行配置来自更新版本的 Tunesmith</translation>
    </message>
    <message>
        <source>This version can&apos;t read the newer file.</source>
        <translation>此版本无法读取更新的文件。</translation>
    </message>
    <message>
        <source>Update Tunesmith, or save the spec again with this version.</source>
        <translation>请更新 Tunesmith，或用当前版本重新保存配置。</translation>
    </message>
    <message>
        <source>The model contains pickle files</source>
        <translation>模型含有 pickle 文件</translation>
    </message>
    <message>
        <source>Weights in pickle format can run any program when they are loaded, so they are refused.</source>
        <translation>pickle 格式的权重在加载时可以运行任意程序，因此不予使用。</translation>
    </message>
    <message>
        <source>Choose a version of the model with safetensors files.</source>
        <translation>请选择带 safetensors 文件的模型版本。</translation>
    </message>
    <message>
        <source>This kind of model can&apos;t be trained here</source>
        <translation>无法训练这种类型的模型</translation>
    </message>
    <message>
        <source>Choose a decoder, such as a Llama, Qwen, Gemma or Mistral model.</source>
        <translation>请选择解码器模型，例如 Llama、Qwen、Gemma 或 Mistral 系列。</translation>
    </message>
    <message>
        <source>The data has no rows</source>
        <translation>数据里没有任何行</translation>
    </message>
    <message>
        <source>The file is empty, or no row is left after skipping.</source>
        <translation>文件是空的，或跳过之后没有剩下任何行。</translation>
    </message>
    <message>
        <source>Choose a file with at least one complete row.</source>
        <translation>请选择至少有一行完整数据的文件。</translation>
    </message>
    <message>
        <source>The chat template has no stop token</source>
        <translation>对话模板没有停止标记</translation>
    </message>
    <message>
        <source>The template writes no token after an answer, so the model can&apos;t learn to end its answers.</source>
        <translation>模板在回答后没有写入任何标记，因此模型学不会何时结束回答。</translation>
    </message>
    <message>
        <source>Choose a model whose chat template ends each answer with a token.</source>
        <translation>请选择对话模板会用标记结束每条回答的模型。</translation>
    </message>
    <message>
        <source>The chat template leaves out a part of the data</source>
        <translation>对话模板忽略了部分数据</translation>
    </message>
    <message>
        <source>Messages have fields that this model&apos;s chat template does not write, so the model never sees them.</source>
        <translation>消息中有该模型的对话模板不会写入的字段，模型看不到这些内容。</translation>
    </message>
    <message>
        <source>Choose a model whose chat template supports these fields, or move their text into the content.</source>
        <translation>请选择对话模板支持这些字段的模型，或将其文本移到消息内容中。</translation>
    </message>
    <message>
        <source>The data contains special tokens</source>
        <translation>数据中含有特殊词元</translation>
    </message>
    <message>
        <source>Words such as &lt;|im_end|&gt; steer the model. In chats they are trained as text unless the settings say otherwise, in plain text as control tokens.</source>
        <translation>&lt;|im_end|&gt; 之类的词会控制模型。对话中默认按普通文本训练，除非设置另有要求；纯文本中按控制词元训练。</translation>
    </message>
    <message>
        <source>Remove them from the data if they are left over from another program.</source>
        <translation>如果它们是其他程序留下的，请从数据中删除。</translation>
    </message>
    <message>
        <source>The rows are joined as plain text</source>
        <translation>各行按纯文本拼接</translation>
    </message>
    <message>
        <source>The row format was set to plain text although the model has a chat template.</source>
        <translation>模型带有对话模板，但行格式被设为纯文本。</translation>
    </message>
    <message>
        <source>Set the row format to &quot;Prompt and response&quot; to train them as a chat.</source>
        <translation>将行格式设为“提示词与回答”，即可按对话训练。</translation>
    </message>
    <message>
        <source>The answers can&apos;t be told apart</source>
        <translation>无法分辨哪些是回答</translation>
    </message>
    <message>
        <source>The chat template does not show which part of a chat the assistant says.</source>
        <translation>对话模板没有标明对话中哪部分是助手说的。</translation>
    </message>
    <message>
        <source>Set Loss on to all tokens, or choose a model with another chat template.</source>
        <translation>请把“计入损失”设为全部词元，或选择对话模板不同的模型。</translation>
    </message>
    <message>
        <source>Nothing would be learned</source>
        <translation>什么也学不到</translation>
    </message>
    <message>
        <source>No token of the data counts for the loss: the answers are empty or cut off by the context length.</source>
        <translation>数据中没有任何词元计入损失：回答是空的，或被上下文长度截掉了。</translation>
    </message>
    <message>
        <source>Raise the context length, or check which column holds the answers.</source>
        <translation>请增大上下文长度，或检查哪一列是回答。</translation>
    </message>
    <message>
        <source>The command line has a missing or unknown part.</source>
        <translation>命令行缺少某部分，或有不认识的部分。</translation>
    </message>
    <message>
        <source>Run tunesmith --help.</source>
        <translation>请运行 tunesmith --help。</translation>
    </message>
    <message>
        <source>The setting can&apos;t be changed</source>
        <translation>无法更改此设置</translation>
    </message>
    <message>
        <source>There is no such setting, or the value is not allowed.</source>
        <translation>没有这个设置，或者值不被允许。</translation>
    </message>
    <message>
        <source>Correct the name or the value.</source>
        <translation>请更正名称或值。</translation>
    </message>
    <message>
        <source>The file can&apos;t be read</source>
        <translation>无法读取文件</translation>
    </message>
    <message>
        <source>It is missing, you may not open it, or it is not the kind of file that is needed.</source>
        <translation>文件不存在、没有读取权限，或者不是所需的文件类型。</translation>
    </message>
    <message>
        <source>Check the path and the file.</source>
        <translation>请检查路径和文件。</translation>
    </message>
    <message>
        <source>There is no such run</source>
        <translation>没有这个运行</translation>
    </message>
    <message>
        <source>No run folder has this name.</source>
        <translation>没有叫这个名字的运行文件夹。</translation>
    </message>
    <message>
        <source>Run tunesmith runs to list them.</source>
        <translation>用 tunesmith runs 可以列出所有运行。</translation>
    </message>
    <message>
        <source>This folder is not a run of Tunesmith</source>
        <translation>这个文件夹不是 Tunesmith 的运行</translation>
    </message>
    <message>
        <source>The run folder is damaged</source>
        <translation>运行文件夹已损坏</translation>
    </message>
    <message>
        <source>A file of the run is missing or unreadable.</source>
        <translation>该运行的某个文件缺失或无法读取。</translation>
    </message>
    <message>
        <source>Restore the folder from a backup, or delete the run.</source>
        <translation>请从备份恢复该文件夹，或删除这个运行。</translation>
    </message>
    <message>
        <source>The run is still in progress</source>
        <translation>运行仍在进行</translation>
    </message>
    <message>
        <source>Another process is using this run.</source>
        <translation>另一个进程正在处理这个运行。</translation>
    </message>
    <message>
        <source>Wait until it ends, or stop it first.</source>
        <translation>请等它结束，或先停止它。</translation>
    </message>
    <message>
        <source>The model belongs to somebody else now</source>
        <translation>模型现在属于其他人</translation>
    </message>
    <message>
        <source>A name on a hub can be given up and taken over, and what is behind it may be another model.</source>
        <translation>模型站上的名称可以被放弃并由他人接手，其背后可能已是另一个模型。</translation>
    </message>
    <message>
        <source>Look at the model&apos;s page. If you trust its owner, use its new name.</source>
        <translation>请查看该模型的页面。如果您信任其所有者，请使用新名称。</translation>
    </message>
    <message>
        <source>There is a model of this name already</source>
        <translation>已有同名模型</translation>
    </message>
    <message>
        <source>The folder of models contains one with the same name.</source>
        <translation>模型文件夹中已有同名的模型。</translation>
    </message>
    <message>
        <source>Remove it first, or rename the folder or file that you import.</source>
        <translation>请先删除它，或重命名要导入的文件夹或文件。</translation>
    </message>
    <message>
        <source>A part of the data is not read</source>
        <translation>部分数据未被读取</translation>
    </message>
    <message>
        <source>The file, folder or archive holds more than the rows that are read: other sheets or splits, or files of another kind.</source>
        <translation>文件、文件夹或压缩包中还有未读取的内容：其他工作表、其他划分，或其他类型的文件。</translation>
    </message>
    <message>
        <source>Choose the part that is to be read, or put the rows into one file.</source>
        <translation>请选择要读取的部分，或将所有行放入同一个文件。</translation>
    </message>
    <message>
        <source>Rows are left out on purpose</source>
        <translation>部分行被有意略过</translation>
    </message>
    <message>
        <source>Rows that are marked as bad answers are not what the model is to learn.</source>
        <translation>标记为差回答的行不应让模型学习。</translation>
    </message>
    <message>
        <source>Nothing has to be done.</source>
        <translation>无需任何操作。</translation>
    </message>
    <message>
        <source>The data holds preference pairs</source>
        <translation>数据为偏好对</translation>
    </message>
    <message>
        <source>Each row has a better and a worse answer. Supervised training learns from the better one.</source>
        <translation>每行包含一个较好和一个较差的回答。监督训练学习较好的回答。</translation>
    </message>
    <message>
        <source>The library has no such data set</source>
        <translation>数据集库中没有这个数据集</translation>
    </message>
    <message>
        <source>Data sets of the library are named when they are added.</source>
        <translation>数据集在加入数据集库时命名。</translation>
    </message>
    <message>
        <source>Run tunesmith data list to see them.</source>
        <translation>运行 tunesmith data list 可查看所有数据集。</translation>
    </message>
    <message>
        <source>The run is not in progress</source>
        <translation>运行没有在进行</translation>
    </message>
    <message>
        <source>The run has ended, so it can&apos;t take commands.</source>
        <translation>运行已经结束，不再接受命令。</translation>
    </message>
    <message>
        <source>Resume it first.</source>
        <translation>请先继续这个运行。</translation>
    </message>
    <message>
        <source>There is nothing to resume</source>
        <translation>没有可以继续的内容</translation>
    </message>
    <message>
        <source>The run is finished, or it has no complete checkpoint and can only start again.</source>
        <translation>运行已完成，或没有完整的检查点，只能重新开始。</translation>
    </message>
    <message>
        <source>Duplicate the run to start again.</source>
        <translation>请复制这个运行，重新开始。</translation>
    </message>
    <message>
        <source>There is something else in this place</source>
        <translation>该位置已有其他内容</translation>
    </message>
    <message>
        <source>An export never replaces a file or a folder.</source>
        <translation>导出从不替换已有的文件或文件夹。</translation>
    </message>
    <message>
        <source>Choose another folder, or move what is there now.</source>
        <translation>请选择其他文件夹，或移走现有内容。</translation>
    </message>
    <message>
        <source>This model can&apos;t be exported in this format</source>
        <translation>该模型无法以此格式导出</translation>
    </message>
    <message>
        <source>A part of the model, or a layer with an adapter, is of a kind that this format or Tunesmith does not support.</source>
        <translation>模型的某个部分，或带适配器的某一层，属于此格式或 Tunesmith 不支持的类型。</translation>
    </message>
    <message>
        <source>Export the adapter instead.</source>
        <translation>请改为导出适配器。</translation>
    </message>
    <message>
        <source>The saved adapter is incomplete</source>
        <translation>保存的适配器不完整</translation>
    </message>
    <message>
        <source>PEFT would not restore every trained weight from it. The checkpoint holds them all.</source>
        <translation>PEFT 无法从中还原所有训练过的权重。检查点里保存着全部权重。</translation>
    </message>
    <message>
        <source>Choose target modules without the named ones, or send us the report. Keep the run: nothing is lost.</source>
        <translation>请从目标模块中去掉所列模块，或把报告发给我们。请保留这次运行，训练结果没有丢失。</translation>
    </message>
    <message>
        <source>A checkpoint is damaged</source>
        <translation>有检查点已损坏</translation>
    </message>
    <message>
        <source>A file of the checkpoint differs from what was saved.</source>
        <translation>检查点中有文件与保存时不同。</translation>
    </message>
    <message>
        <source>Resume continues from the newest complete checkpoint.</source>
        <translation>继续时会从最新的完整检查点开始。</translation>
    </message>
    <message>
        <source>The engine ended unexpectedly</source>
        <translation>引擎意外结束</translation>
    </message>
    <message>
        <source>The engine was killed</source>
        <translation>引擎被终止</translation>
    </message>
    <message>
        <source>The run makes no progress</source>
        <translation>运行没有进展</translation>
    </message>
    <message>
        <source>No step has ended for much longer than usual.</source>
        <translation>已经比平时久得多没有完成一步。</translation>
    </message>
    <message>
        <source>Training is not set up yet</source>
        <translation>训练环境还没有装好</translation>
    </message>
    <message>
        <source>The training environment is not installed on this computer, or its folder is gone.</source>
        <translation>这台电脑上没有安装训练环境，或它的文件夹不见了。</translation>
    </message>
    <message>
        <source>Run: python3 installers/bootstrap.py</source>
        <translation>请运行：python3 installers/bootstrap.py</translation>
    </message>
    <message>
        <source>The device computes wrong results</source>
        <translation>设备的计算结果有误</translation>
    </message>
    <message>
        <source>The results of the GPU or the processor differ from exact arithmetic by more than rounding explains.</source>
        <translation>GPU 或处理器的结果与精确计算的差别超出了舍入误差。</translation>
    </message>
    <message>
        <source>Restart the computer, undo any overclocking, and update the driver. Then test the environment again.</source>
        <translation>请重启电脑，取消超频并更新驱动，然后重新测试环境。</translation>
    </message>
    <message>
        <source>An environment could not be built</source>
        <translation>无法建立环境</translation>
    </message>
    <message>
        <source>A package could not be downloaded or installed.</source>
        <translation>有软件包无法下载或安装。</translation>
    </message>
    <message>
        <source>Check the network and the free space, then run the same command again. It continues where it stopped.</source>
        <translation>请检查网络和剩余空间，然后再次运行同一命令，它会从中断处继续。</translation>
    </message>
    <message>
        <source>An environment is damaged</source>
        <translation>环境已损坏</translation>
    </message>
    <message>
        <source>Installed files are missing or changed, or files were added that do not belong there.</source>
        <translation>已安装的文件缺失或被更改，或多出了不属于那里的文件。</translation>
    </message>
    <message>
        <source>Run: tunesmith repair</source>
        <translation>请运行：tunesmith repair</translation>
    </message>
    <message>
        <source>System libraries are missing</source>
        <translation>缺少系统库</translation>
    </message>
    <message>
        <source>The window needs libraries of the operating system that are not installed.</source>
        <translation>窗口需要的操作系统库没有安装。</translation>
    </message>
    <message>
        <source>Install the named packages, then try again.</source>
        <translation>请安装指出的软件包，然后重试。</translation>
    </message>
    <message>
        <source>There is no screen</source>
        <translation>没有显示器</translation>
    </message>
    <message>
        <source>No display is available to open a window on.</source>
        <translation>没有可以打开窗口的显示环境。</translation>
    </message>
    <message>
        <source>Use the command line: tunesmith train SPEC.json</source>
        <translation>请使用命令行：tunesmith train SPEC.json</translation>
    </message>
    <message>
        <source>This Python can&apos;t be used</source>
        <translation>不能使用这个 Python</translation>
    </message>
    <message>
        <source>Tunesmith needs Python 3.11, 3.12 or 3.13.</source>
        <translation>Tunesmith 需要 Python 3.11、3.12 或 3.13。</translation>
    </message>
    <message>
        <source>Install one of these versions, then try again.</source>
        <translation>请安装其中一个版本，然后重试。</translation>
    </message>
    <message>
        <source>Close other programs, lower the micro-batch size or the context length, or choose a smaller model.</source>
        <translation>请关闭其他程序，减小微批次大小或上下文长度，或选择更小的模型。</translation>
    </message>
    <message>
        <source>The run continues under different conditions</source>
        <translation>运行在不同的条件下继续</translation>
    </message>
    <message>
        <source>A part of the model trains without fused kernels</source>
        <translation>模型的一部分未使用融合内核进行训练</translation>
    </message>
    <message>
        <source>The fused kernels don&apos;t support this part or setting, or failed their test on this computer.</source>
        <translation>融合内核不支持此部分或此设置，或未能通过本机的验证。</translation>
    </message>
    <message>
        <source>No action needed. The results are the same, only slower.</source>
        <translation>无需处理。结果相同，只是更慢。</translation>
    </message>
    <message>
        <source>A sample could not be generated</source>
        <translation>无法生成样例</translation>
    </message>
    <message>
        <source>transformers could not generate text with this model or this prompt. Training itself is not affected.</source>
        <translation>transformers 无法用这个模型或这条提示词生成文本。训练本身不受影响。</translation>
    </message>
    <message>
        <source>No action needed. The run continues. Remove the sample prompts if this happens again.</source>
        <translation>无需处理，运行会继续。如果再次出现，请删除示例提示词。</translation>
    </message>
    <message>
        <source>The engine and the program have different versions</source>
        <translation>引擎与程序的版本不同</translation>
    </message>
    <message>
        <source>The journal was written by a newer version.</source>
        <translation>记录文件是由更新的版本写的。</translation>
    </message>
    <message>
        <source>Update Tunesmith.</source>
        <translation>请更新 Tunesmith。</translation>
    </message>
    <message>
        <source>The settings could not be read in full</source>
        <translation>未能完整读取设置</translation>
    </message>
    <message>
        <source>The settings file is damaged or contains invalid values.</source>
        <translation>设置文件已损坏，或含有不合适的值。</translation>
    </message>
    <message>
        <source>Check the Settings page and set what is missing. Saving repairs the file.</source>
        <translation>请查看设置页并补上缺失的内容；保存后文件会修复。</translation>
    </message>
    <message>
        <source>The open window does not respond</source>
        <translation>已打开的窗口没有回应</translation>
    </message>
    <message>
        <source>Tunesmith is open already, and its window is busy or hangs.</source>
        <translation>Tunesmith 已经打开，但它的窗口正忙或失去响应。</translation>
    </message>
    <message>
        <source>Wait a moment and try again, or end the other window in the task manager. Its runs continue.</source>
        <translation>请稍候再试，或在任务管理器里结束那个窗口：运行会继续。</translation>
    </message>
    <message>
        <source>This folder can&apos;t be used for Tunesmith&apos;s data</source>
        <translation>这个文件夹不能存放 Tunesmith 的数据</translation>
    </message>
    <message>
        <source>Folders of a cloud, a network or the system and removable drives lose files, lock them or are too slow.</source>
        <translation>云盘、网络和系统的文件夹以及可移动磁盘会丢失或锁定文件，或者太慢。</translation>
    </message>
    <message>
        <source>Choose a folder of your own on a drive inside this computer, such as D:\Tunesmith or ~/tunesmith.</source>
        <translation>请在这台电脑内部的磁盘上选择你自己的文件夹，例如 D:\Tunesmith 或 ~/tunesmith。</translation>
    </message>
    <message>
        <source>Tunesmith made a mistake</source>
        <translation>Tunesmith 出错了</translation>
    </message>
    <message>
        <source>Something unexpected happened.</source>
        <translation>发生了我们没有预料到的情况。</translation>
    </message>
    <message>
        <source>Copy the diagnostics and report them. Nothing of your run is lost.</source>
        <translation>请复制诊断信息并报告给我们；你的运行没有丢失任何内容。</translation>
    </message>
    <message>
        <source>Repair the training environment</source>
        <translation>修复训练环境</translation>
    </message>
    <message>
        <source>Install the PyTorch build for this GPU</source>
        <translation>安装适合这块 GPU 的 PyTorch</translation>
    </message>
    <message>
        <source>Clear the compile caches</source>
        <translation>清空编译缓存</translation>
    </message>
    <message>
        <source>Train without fused kernels</source>
        <translation>不用融合内核训练</translation>
    </message>
    <message>
        <source>Use the standard attention</source>
        <translation>使用标准注意力</translation>
    </message>
    <message>
        <source>Train on one GPU</source>
        <translation>只用一块 GPU 训练</translation>
    </message>
    <message>
        <source>Train on the CPU</source>
        <translation>在 CPU 上训练</translation>
    </message>
    <message>
        <source>Train under WSL</source>
        <translation>在 WSL 中训练</translation>
    </message>
    <message>
        <source>Set up WSL</source>
        <translation>安装 WSL</translation>
    </message>
    <message>
        <source>Open NVIDIA&apos;s driver page</source>
        <translation>打开 NVIDIA 驱动下载页</translation>
    </message>
    <message>
        <source>Install the Visual C++ runtime</source>
        <translation>安装 Visual C++ 运行库</translation>
    </message>
    <message>
        <source>Open the page file settings</source>
        <translation>打开页面文件设置</translation>
    </message>
    <message>
        <source>Allow long paths in Windows</source>
        <translation>允许 Windows 使用长路径</translation>
    </message>
    <message>
        <source>Use a folder with a short, plain path</source>
        <translation>使用路径短而简单的文件夹</translation>
    </message>
    <message>
        <source>Free disk space</source>
        <translation>磁盘剩余空间</translation>
    </message>
    <message>
        <source>Use less GPU memory</source>
        <translation>减少显存占用</translation>
    </message>
    <message>
        <source>Lower the learning rate</source>
        <translation>降低学习率</translation>
    </message>
    <message>
        <source>Switch packing off</source>
        <translation>关闭样本打包</translation>
    </message>
    <message>
        <source>Read as Windows-1252</source>
        <translation>按 Windows-1252 读取</translation>
    </message>
    <message>
        <source>Read as GB18030 (Chinese)</source>
        <translation>按 GB18030（中文）读取</translation>
    </message>
    <message>
        <source>Check the data file</source>
        <translation>检查数据文件</translation>
    </message>
    <message>
        <source>Choose a chat template</source>
        <translation>选择对话模板</translation>
    </message>
    <message>
        <source>Choose another model</source>
        <translation>选择另一个模型</translation>
    </message>
    <message>
        <source>Download the model again</source>
        <translation>重新下载模型</translation>
    </message>
    <message>
        <source>Choose the LoRA target modules</source>
        <translation>选择 LoRA 的目标模块</translation>
    </message>
    <message>
        <source>Sign in to the hub</source>
        <translation>登录模型站点</translation>
    </message>
    <message>
        <source>Set proxy and certificate</source>
        <translation>设置代理和证书</translation>
    </message>
    <message>
        <source>Try again</source>
        <translation>重试</translation>
    </message>
    <message>
        <source>micro-batches of {value}</source>
        <translation>大小为 {value} 的微批次</translation>
    </message>
    <message>
        <source>activation checkpointing</source>
        <translation>激活检查点</translation>
    </message>
    <message>
        <source>{value:,} tokens</source>
        <translation>{value:,} 个词元</translation>
    </message>
    <message>
        <source>a 4-bit base (QLoRA)</source>
        <translation>4 位基础模型（QLoRA）</translation>
    </message>
    <message>
        <source>rank {value}</source>
        <translation>秩 {value}</translation>
    </message>
    <message>
        <source>The CPU build of PyTorch is installed. Reinstall PyTorch by its full local version (such as 2.6.0+cu124) from the CUDA index. Without an NVIDIA GPU, set the device to CPU instead.</source>
        <translation>当前安装的是 CPU 版 PyTorch。请按完整的本地版本号（如 2.6.0+cu124）重新安装 CUDA 版；没有 NVIDIA 显卡时，请把设备设为 CPU。</translation>
    </message>
    <message>
        <source>No usable NVIDIA GPU is visible to this process. Install the NVIDIA driver and restart, check that CUDA_VISIBLE_DEVICES names an existing GPU (containers: start with GPU access), or train on the CPU.</source>
        <translation>当前进程看不到可用的 NVIDIA 显卡。请安装 NVIDIA 驱动并重启，检查 CUDA_VISIBLE_DEVICES 是否指向存在的显卡（容器需启用 GPU），或改用 CPU 训练。</translation>
    </message>
    <message>
        <source>This computer has no NVIDIA GPU, so the program must not ask for CUDA: choose the CPU as the device.</source>
        <translation>这台电脑没有 NVIDIA 显卡，程序不应请求 CUDA：请选择 CPU 作为设备。</translation>
    </message>
    <message>
        <source>A half-precision mode was asked for without a GPU that has it. Check that the GPU is visible. Then use fp16 on GPUs before compute capability 8.0, bf16 from 8.0, and full precision on the CPU.</source>
        <translation>请求了当前设备不支持的半精度。请先确认能看到显卡；计算能力低于 8.0 的显卡用 fp16，8.0 起用 bf16，CPU 用全精度。</translation>
    </message>
    <message>
        <source>The NVIDIA driver was updated, but the old one is still running. Restart the computer.</source>
        <translation>NVIDIA 驱动已更新，但仍在运行旧版本。请重启电脑。</translation>
    </message>
    <message>
        <source>The NVIDIA driver is older than this PyTorch build needs: CUDA 12.x builds need 525 (Linux) or 528 (Windows) at least, CUDA 13.x builds need 580. Install a current driver and restart, or install a PyTorch build for an older CUDA.</source>
        <translation>NVIDIA 驱动版本低于此 PyTorch 的要求：CUDA 12.x 至少需要 525（Linux）或 528（Windows），CUDA 13.x 需要 580。请更新驱动并重启，或安装面向旧版 CUDA 的 PyTorch。</translation>
    </message>
    <message>
        <source>The installed PyTorch (or a compiled extension) holds no code for this GPU. RTX 50 and newer need a CUDA 12.8 build, GTX 10 and older the CUDA 12.4 or 12.6 build. Install the build for this card.</source>
        <translation>已安装的 PyTorch（或某个编译扩展）不含适用于此显卡的代码。RTX 50 及更新的显卡需要 CUDA 12.8 版，GTX 10 及更旧的显卡需要 CUDA 12.4 或 12.6 版；请安装对应版本。</translation>
    </message>
    <message>
        <source>A CUDA library that PyTorch brings along is missing or shadowed by another version. Reinstall PyTorch with its dependencies and remove toolkit folders from LD_LIBRARY_PATH or PATH.</source>
        <translation>PyTorch 自带的某个 CUDA 库缺失，或被其他版本遮蔽。请连同依赖重新安装 PyTorch，并从 LD_LIBRARY_PATH 或 PATH 中移除 CUDA 工具包目录。</translation>
    </message>
    <message>
        <source>Windows could not load a library or something it depends on. Install the Microsoft Visual C++ 2015-2022 runtime (x64). If that does not help, reinstall PyTorch in an environment of a full CPython (not Anaconda or the Store).</source>
        <translation>Windows 无法加载某个库或其依赖。请安装 Microsoft Visual C++ 2015-2022 运行库 (x64)；若无效，请在完整的 CPython 环境（非 Anaconda、非商店版）中重新安装 PyTorch。</translation>
    </message>
    <message>
        <source>A package that was built for NumPy 1 runs with NumPy 2, or the reverse. Install the pinned set, or numpy below 2 until the named package is updated.</source>
        <translation>为 NumPy 1 编译的包与 NumPy 2 混用（或相反）。请安装固定版本的依赖，或在该包更新之前使用低于 2 的 numpy。</translation>
    </message>
    <message>
        <source>Triton is not installed. Plain PyTorch training does not need it. For fused kernels install the version that the installed torch declares (on Windows the package triton-windows).</source>
        <translation>未安装 Triton。普通 PyTorch 训练不需要它；若要使用融合内核，请安装 torch 所声明的版本（Windows 上为 triton-windows 包）。</translation>
    </message>
    <message>
        <source>Triton does not match PyTorch: torch 2.6 needs Triton 3.2, 2.10 needs 3.6. Install the matching version, and only one of triton and triton-windows.</source>
        <translation>Triton 与 PyTorch 版本不匹配：torch 2.6 需要 Triton 3.2，2.10 需要 3.6。请安装对应版本，且 triton 与 triton-windows 只保留一个。</translation>
    </message>
    <message>
        <source>There is no package called triton for this system. On Windows install triton-windows in the version that fits torch, or train without fused kernels.</source>
        <translation>此系统没有名为 triton 的安装包。Windows 上请安装与 torch 匹配的 triton-windows，或不使用融合内核训练。</translation>
    </message>
    <message>
        <source>Triton can&apos;t compile for this GPU generation. Switch off torch.compile and every Triton kernel (TORCH_COMPILE_DISABLE=1) and train with plain PyTorch.</source>
        <translation>Triton 无法为这一代显卡编译。请关闭 torch.compile 和所有 Triton 内核（TORCH_COMPILE_DISABLE=1），使用普通 PyTorch 训练。</translation>
    </message>
    <message>
        <source>The kernel uses a feature, mostly bf16, that this GPU does not have (bf16 needs compute capability 8.0). Train in fp16 and without Triton kernels.</source>
        <translation>内核使用了此显卡不具备的功能，多为 bf16（需要计算能力 8.0）。请用 fp16 训练并关闭 Triton 内核。</translation>
    </message>
    <message>
        <source>This Triton is older than the GPU. Install the CUDA 12.8 profile with its newer Triton, or train without Triton kernels.</source>
        <translation>此 Triton 版本早于显卡。请安装带有新版 Triton 的 CUDA 12.8 配置，或不使用 Triton 内核训练。</translation>
    </message>
    <message>
        <source>The kernel needs more shared memory than this GPU has. Use smaller blocks or fewer stages, or train without this kernel.</source>
        <translation>内核所需的共享内存超过此显卡的上限。请减小块大小或流水级数，或不使用该内核。</translation>
    </message>
    <message>
        <source>Triton&apos;s assembler ptxas failed, mostly because another CUDA version supplied it. Remove TRITON_PTXAS_PATH and CUDA_PATH from the environment, install the Triton that fits torch (it brings its own ptxas) and clear the Triton cache.</source>
        <translation>Triton 的汇编器 ptxas 失败，多半是因为用了其他 CUDA 版本的 ptxas。请移除环境变量 TRITON_PTXAS_PATH 和 CUDA_PATH，安装与 torch 匹配的 Triton（自带 ptxas），并清除 Triton 缓存。</translation>
    </message>
    <message>
        <source>ptxas comes from another CUDA version than Triton expects. Remove TRITON_PTXAS_PATH and CUDA_PATH, so that the ptxas inside the Triton package is used, and clear the Triton cache.</source>
        <translation>ptxas 来自与 Triton 预期不同的 CUDA 版本。请移除 TRITON_PTXAS_PATH 和 CUDA_PATH，使用 Triton 包内的 ptxas，并清除 Triton 缓存。</translation>
    </message>
    <message>
        <source>This ptxas is too old for the GPU. Install a newer Triton with CUDA 12.8 or later (the profile for this card), or train without Triton kernels.</source>
        <translation>此 ptxas 过旧，不认识该显卡。请安装带 CUDA 12.8 或更高版本的新 Triton（适合此显卡的配置），或不使用 Triton 内核训练。</translation>
    </message>
    <message>
        <source>ptxas is missing or can&apos;t be started. Reinstall Triton, whose package holds it, and remove TRITON_PTXAS_PATH.</source>
        <translation>ptxas 缺失或无法启动。请重新安装自带 ptxas 的 Triton，并移除 TRITON_PTXAS_PATH。</translation>
    </message>
    <message>
        <source>Triton could not build its launcher because Python&apos;s headers or import libraries are missing. Use a full CPython, not the embeddable one. On Linux install the python3-dev package and gcc. Then clear the Triton cache.</source>
        <translation>缺少 Python 头文件或导入库，Triton 无法编译启动器。请使用完整的 CPython（非嵌入版；Linux 上安装 python3-dev 和 gcc），然后清除 Triton 缓存。</translation>
    </message>
    <message>
        <source>Triton loads a launcher that was compiled for another Python, Triton or CUDA. Clear the Triton cache, then start again.</source>
        <translation>Triton 加载了为其他 Python、Triton 或 CUDA 编译的启动器。请清除 Triton 缓存后重试。</translation>
    </message>
    <message>
        <source>Triton found no C compiler for its launcher. Install gcc and the C headers, or train without Triton kernels.</source>
        <translation>Triton 找不到用于编译启动器的 C 编译器。请安装 gcc 及 C 头文件，或不使用 Triton 内核训练。</translation>
    </message>
    <message>
        <source>The variable CC (or the compiler found in its place) is a folder or a compiler that Triton can&apos;t use. Remove CC for this program, so that the bundled compiler or gcc is taken.</source>
        <translation>环境变量 CC（或找到的编译器）指向文件夹或 Triton 无法使用的编译器。请移除 CC，让程序使用自带的编译器或 gcc。</translation>
    </message>
    <message>
        <source>A kernel was given half and full precision together. Load base model and adapter in one number format and switch the fused kernel (or torch.compile) off until its package is updated.</source>
        <translation>内核同时收到了半精度和全精度数据。请让基础模型与适配器使用同一种数值格式，并在软件包更新前关闭该融合内核（或 torch.compile）。</translation>
    </message>
    <message>
        <source>An operation met tensors in different number formats. Load everything in one format (bf16 or fp16 with autocast), and keep only the adapter in fp32.</source>
        <translation>某个运算遇到了不同数值格式的张量。请统一加载格式（bf16，或带 autocast 的 fp16），只让适配器保持 fp32。</translation>
    </message>
    <message>
        <source>A C++ compiler is needed but missing. For torch.compile: turn it off (TORCH_COMPILE_DISABLE=1), training does not need it. For a package that pip builds: choose a version with a ready wheel, or install the Visual C++ build tools.</source>
        <translation>需要 C++ 编译器但未找到。若来自 torch.compile：请关闭（TORCH_COMPILE_DISABLE=1），训练不需要它；若 pip 正在编译某个包：请选择有现成 wheel 的版本，或安装 Visual C++ 生成工具。</translation>
    </message>
    <message>
        <source>bitsandbytes can&apos;t load its library for this CUDA version. Remove old Windows forks and BNB_CUDA_VERSION, and install the current official bitsandbytes, or train without 4-bit and 8-bit.</source>
        <translation>bitsandbytes 无法加载对应此 CUDA 版本的库。请移除旧的 Windows 分支版和变量 BNB_CUDA_VERSION，安装最新的官方 bitsandbytes；或不使用 4 位、8 位训练。</translation>
    </message>
    <message>
        <source>bitsandbytes is not installed or too old for what the settings ask. Install the pinned version, or choose a setting without 4-bit, 8-bit and 8-bit optimizers.</source>
        <translation>bitsandbytes 未安装或版本过旧。请安装固定版本，或选择不使用 4 位、8 位及 8 位优化器的设置。</translation>
    </message>
    <message>
        <source>The settings ask for flash-attn, which is not installed. Use the standard attention (attn_implementation=&quot;sdpa&quot;): it is nearly as fast and needs no extra package.</source>
        <translation>设置要求使用 flash-attn，但未安装。请改用标准注意力（attn_implementation=&quot;sdpa&quot;），速度相近且无需额外安装。</translation>
    </message>
    <message>
        <source>The installed flash-attn was built for another PyTorch, Python or CUDA. Uninstall it and use the standard attention (&quot;sdpa&quot;), or install the wheel for exactly this PyTorch.</source>
        <translation>已安装的 flash-attn 是为其他 PyTorch、Python 或 CUDA 编译的。请卸载并改用标准注意力（&quot;sdpa&quot;），或安装与当前 PyTorch 完全对应的 wheel。</translation>
    </message>
    <message>
        <source>flash-attn does not support this GPU (it needs compute capability 8.0). Use the standard attention (&quot;sdpa&quot;).</source>
        <translation>flash-attn 不支持此显卡（需要计算能力 8.0）。请使用标准注意力（&quot;sdpa&quot;）。</translation>
    </message>
    <message>
        <source>flash-attn could not be built. It is optional: leave it out and use the standard attention (&quot;sdpa&quot;).</source>
        <translation>flash-attn 编译失败。它是可选的：请不要安装，改用标准注意力（&quot;sdpa&quot;）。</translation>
    </message>
    <message>
        <source>The installed PyTorch is older than Transformers and its relatives need. Later errors such as &quot;name &apos;nn&apos; is not defined&quot; only follow from that. Install torch 2.6.0 (CUDA 12.4) or newer.</source>
        <translation>已安装的 PyTorch 低于 Transformers 等库的要求；之后出现的 &quot;name &apos;nn&apos; is not defined&quot; 等错误只是后果。请安装 torch 2.6.0（CUDA 12.4）或更新版本。</translation>
    </message>
    <message>
        <source>The installed Transformers does not know this model, or no longer has what the model&apos;s code imports. Install the Transformers version that the model&apos;s page names, or choose another model.</source>
        <translation>已安装的 Transformers 不认识此模型，或不再包含模型代码所需的内容。请安装模型页面所写的 Transformers 版本，或换一个模型。</translation>
    </message>
    <message>
        <source>The tokenizer file is newer than the installed tokenizers library. Update tokenizers and Transformers together.</source>
        <translation>分词器文件比已安装的 tokenizers 库新。请同时更新 tokenizers 和 Transformers。</translation>
    </message>
    <message>
        <source>The model brings its own code, which would have to run on this computer. Use a Transformers version that knows the model natively, or choose another model. Allow the code only if you trust its author.</source>
        <translation>该模型自带需要在本机运行的代码。请使用原生支持该模型的 Transformers 版本，或换一个模型；只有信任作者时才允许运行。</translation>
    </message>
    <message>
        <source>Libraries of different generations are mixed: one passes or imports something that the other does not have in its version. Reinstall the pinned set of transformers, trl, peft and accelerate, or rename the argument as the installed version expects.</source>
        <translation>不同年代的库混在一起：一方传入或导入了另一方版本中没有的内容。请重新安装固定版本的 transformers、trl、peft 和 accelerate，或按已安装版本修改参数名。</translation>
    </message>
    <message>
        <source>The named LoRA target modules do not fit this model. Use &quot;all-linear&quot;, or list linear layers that the model really has.</source>
        <translation>指定的 LoRA 目标模块与此模型不符。请使用 &quot;all-linear&quot;，或列出模型中确实存在的线性层。</translation>
    </message>
    <message>
        <source>A library of the tokenizer is missing. Install sentencepiece, protobuf and tiktoken into the training environment. The last error line often names only the fallback.</source>
        <translation>缺少分词器所需的库。请在训练环境中安装 sentencepiece、protobuf 和 tiktoken；最后一行错误往往只提到备用方案。</translation>
    </message>
    <message>
        <source>The installed protobuf does not fit the tokenizer&apos;s generated code. Install the pinned protobuf.</source>
        <translation>已安装的 protobuf 与分词器的生成代码不匹配。请安装固定版本的 protobuf。</translation>
    </message>
    <message>
        <source>The GPU memory is exhausted. In this order: batch size 1 with gradient accumulation, activation checkpointing, a shorter context length, a 4-bit base model, a smaller model. Close programs that hold GPU memory.</source>
        <translation>显存已耗尽。请依次尝试：批大小 1 加梯度累积、激活检查点、缩短上下文长度、4 位基础模型、更小的模型；并关闭占用显存的程序。</translation>
    </message>
    <message>
        <source>The quantized model does not fit into the GPU memory, so parts would go to main memory. Choose a smaller model, or free GPU memory.</source>
        <translation>量化后的模型放不进显存，部分会被移到内存。请选择更小的模型，或释放显存。</translation>
    </message>
    <message>
        <source>The computer&apos;s memory is full, not the GPU&apos;s. Close other programs, lower the batch size or the context length, or choose a smaller model.</source>
        <translation>电脑内存已满（不是显存）。请关闭其他程序，减小批大小或上下文长度，或换用更小的模型。</translation>
    </message>
    <message>
        <source>The loss or the gradients are NaN or infinite. Stop, lower the learning rate to a tenth, train in bf16 with the adapter in fp32, use the standard attention, and resume from the last good checkpoint.</source>
        <translation>损失或梯度已不是有效数值。请停止训练，把学习率降到十分之一，用 bf16 训练并让适配器保持 fp32，使用标准注意力，从最后一个正常的检查点继续。</translation>
    </message>
    <message>
        <source>The loss is exactly 0: either the numbers overflowed, or no token counts for the loss. Check which part of the data is trained on (label mask, template), then precision and learning rate.</source>
        <translation>损失恰好为 0：要么数值溢出，要么没有任何词元参与损失。请检查训练的是数据的哪一部分（标签掩码、模板），再检查精度和学习率。</translation>
    </message>
    <message>
        <source>A GPU kernel touched memory that is not its own. The reported line is not the cause. Switch packing off, then flash attention and fused kernels. CUDA_LAUNCH_BLOCKING=1 shows the real place. Start a new process in any case.</source>
        <translation>某个 GPU 内核访问了非法内存；报错的行并不是真正的位置。请先关闭打包，再关闭 flash attention 和融合内核；CUDA_LAUNCH_BLOCKING=1 可显示真实位置。务必启动新进程。</translation>
    </message>
    <message>
        <source>A kernel found an index out of range, often a token id beyond the vocabulary or a label beyond the classes. Resize the embeddings after adding tokens, check labels. CUDA_LAUNCH_BLOCKING=1 or a run on the CPU shows the place.</source>
        <translation>内核发现索引越界，常见原因是词元编号超出词表或标签超出类别数。添加词元后请调整嵌入大小并检查标签；设置 CUDA_LAUNCH_BLOCKING=1 或在 CPU 上运行可看到位置。</translation>
    </message>
    <message>
        <source>Tensors lie on different devices. Make one GPU visible (CUDA_VISIBLE_DEVICES=0 before Python starts) and use device_map={&quot;&quot;: 0}. If it says cpu, the script forgot to move a tensor and must be updated.</source>
        <translation>张量位于不同的设备。请只让一张显卡可见（在 Python 启动前设置 CUDA_VISIBLE_DEVICES=0），并使用 device_map={&quot;&quot;: 0}；若提到 cpu，则是脚本漏移了某个张量，需要更新脚本。</translation>
    </message>
    <message>
        <source>Parts of the model were moved to main memory because the GPU memory was too small, and can&apos;t be trained there. Choose a smaller model or 4-bit, and put everything on one GPU.</source>
        <translation>由于显存不足，模型的一部分被移到了内存，无法训练。请选择更小的模型或 4 位量化，并把全部内容放在一张显卡上。</translation>
    </message>
    <message>
        <source>The data is missing the column (or key) that training expects. Name the real column in the settings, or convert the rows to messages or text.</source>
        <translation>数据缺少训练所需的列（或键）。请在设置中指定实际的列名，或把数据转换为 messages 或 text 格式。</translation>
    </message>
    <message>
        <source>A dictionary of splits was passed where one split is expected. Choose a split such as train.</source>
        <translation>传入的是包含多个分割的字典，而这里需要一个分割。请选择其中之一，例如 train。</translation>
    </message>
    <message>
        <source>A data file can&apos;t be parsed: a malformed line, other columns than the rest, or another encoding. Correct the named line. Files with different columns must be brought to one schema. Save as UTF-8.</source>
        <translation>数据文件无法解析：某行格式错误、列与其他文件不同，或编码不同。请修正所指的行；列不同的文件要统一格式；并保存为 UTF-8。</translation>
    </message>
    <message>
        <source>The data file or folder is empty, or no row is left. Choose a file with rows.</source>
        <translation>数据文件或文件夹为空，或没有剩余的行。请选择含有数据的文件。</translation>
    </message>
    <message>
        <source>The data set was not found under this name or path. Check the path and the file type.</source>
        <translation>在此名称或路径下找不到数据集。请检查路径和文件类型。</translation>
    </message>
    <message>
        <source>The tokenizer has no chat template, as is usual for base models. Choose the instruct version of the model, or set a template (ChatML, for example) before formatting messages.</source>
        <translation>分词器没有对话模板，基础模型通常如此。请选择该模型的指令版，或在格式化消息前设置模板（例如 ChatML）。</translation>
    </message>
    <message>
        <source>The chat template does not accept the roles of this chat, for example a system message or two turns of one speaker. Choose another template, or correct the order of roles.</source>
        <translation>对话模板不接受对话中的角色，例如 system 消息或同一角色连续发言。请换一个模板，或修正角色顺序。</translation>
    </message>
    <message>
        <source>The model&apos;s files are missing, cut short or not at this path. Check the path (a folder with config.json and weights). After a broken download delete the named file and download it again.</source>
        <translation>模型文件缺失、不完整或路径不对。请检查路径（文件夹中应有 config.json 和权重）；若下载中断，请删除所指文件后重新下载。</translation>
    </message>
    <message>
        <source>PyTorch refuses this weight file because it is a pickle, which can run code when it is loaded. Choose a model with safetensors files, or a checkpoint that this program wrote itself. A file that should be plain is damaged: download it again.</source>
        <translation>PyTorch 拒绝加载此权重文件：它是 pickle 格式，加载时可能执行代码。请选择带 safetensors 文件的模型或本程序自己写的检查点；若本应是普通权重，则文件已损坏，请重新下载。</translation>
    </message>
    <message>
        <source>The weights or the adapter belong to another base model or vocabulary than the one that is loaded. Choose the base model that the adapter was trained on, and the same added tokens.</source>
        <translation>权重或适配器与当前加载的基础模型（或词表）不匹配。请选择训练该适配器时所用的基础模型，并添加相同的词元。</translation>
    </message>
    <message>
        <source>The model is gated or private. Accept its terms on the model&apos;s page, sign in with a read token, or choose an ungated model.</source>
        <translation>该模型需要授权或为私有。请在模型页面接受条款，用读取令牌登录，或选择不受限的模型。</translation>
    </message>
    <message>
        <source>The hub can&apos;t be reached. Check the network and the name resolution, try again, set a reachable mirror (HF_ENDPOINT), or use a model folder on this computer.</source>
        <translation>无法连接到模型站点。请检查网络和域名解析后重试，设置可用的镜像（HF_ENDPOINT），或使用本机的模型文件夹。</translation>
    </message>
    <message>
        <source>An offline switch is on, and the file is not in the local cache. Unset HF_HUB_OFFLINE (or local_files_only), download once, or use a model folder on this computer.</source>
        <translation>离线开关已打开，而本地缓存中没有该文件。请取消 HF_HUB_OFFLINE（或 local_files_only），下载一次，或使用本机的模型文件夹。</translation>
    </message>
    <message>
        <source>A proxy or security software replaces the server&apos;s certificate, which Python does not trust. Make its certificate known (SSL_CERT_FILE, or the system&apos;s store). Turning verification off does not help.</source>
        <translation>代理或安全软件替换了服务器证书，Python 不信任它。请让其证书可被识别（SSL_CERT_FILE 或系统证书库）；关闭验证并不能解决问题。</translation>
    </message>
    <message>
        <source>The configured proxy is unreachable, wrong or needs a password. Correct or remove HTTP_PROXY, HTTPS_PROXY and ALL_PROXY, then try again.</source>
        <translation>配置的代理失效、错误或需要密码。请修正或移除 HTTP_PROXY、HTTPS_PROXY 和 ALL_PROXY 后重试。</translation>
    </message>
    <message>
        <source>Windows does not let this user create symbolic links, which the download cache uses. Turn on the developer mode of Windows, or update huggingface_hub and set HF_HUB_DISABLE_SYMLINKS=1.</source>
        <translation>Windows 不允许当前用户创建符号链接，而下载缓存需要它。请打开 Windows 开发者模式，或更新 huggingface_hub 并设置 HF_HUB_DISABLE_SYMLINKS=1。</translation>
    </message>
    <message>
        <source>The drive is full. Free space or move the output to another drive, keep fewer checkpoints, save adapters only, delete the unfinished newest checkpoint and resume from the last complete one.</source>
        <translation>磁盘已满。请释放空间或把输出移到其他磁盘，减少保留的检查点，只保存适配器，删除未写完的最新检查点，并从上一个完整的检查点继续。</translation>
    </message>
    <message>
        <source>There is less free space than the download needs, and the hub library only warns. Free space before the download.</source>
        <translation>剩余空间小于下载所需，而下载库只给出警告。请在下载前释放空间。</translation>
    </message>
    <message>
        <source>Windows has reached its commit limit (main memory plus page file), not the GPU&apos;s memory. Let Windows manage the page file, use 0 data loader workers, close programs and restart.</source>
        <translation>Windows 已达到提交上限（内存加页面文件），与显存无关。请让系统管理页面文件，把数据加载进程设为 0，关闭其他程序并重启。</translation>
    </message>
    <message>
        <source>A path exceeds what the system allows, mostly in a compile cache. Set TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR to a very short folder, or allow long paths in Windows (administrator, restart).</source>
        <translation>路径超过系统允许的长度，多出现在编译缓存中。请把 TRITON_CACHE_DIR 和 TORCHINDUCTOR_CACHE_DIR 设为很短的目录，或在 Windows 中启用长路径（需管理员权限并重启）。</translation>
    </message>
    <message>
        <source>A native library can&apos;t open a path with letters beyond plain Latin. The file itself exists. Move model, cache, output and temporary folder to a path of plain letters.</source>
        <translation>本机库无法打开含非英文字符的路径，文件本身是存在的。请把模型、缓存、输出和临时目录移到纯英文路径。</translation>
    </message>
    <message>
        <source>Access to a file or folder was refused: another process or a virus scanner holds it, or the folder is protected. Close the other program, write to a folder of your own, and exclude it from the scanner. Then try again.</source>
        <translation>对文件或文件夹的访问被拒绝：可能被其他进程或杀毒软件占用，或文件夹受保护。请关闭其他程序，写入自己的文件夹，并在杀毒软件中排除它，然后重试。</translation>
    </message>
    <message>
        <source>Security software altered or hid a source file before the compiler read it. Exclude Tunesmith&apos;s folder from it, then repair the environment.</source>
        <translation>安全软件在编译器读取之前改动或隐藏了源文件。请把 Tunesmith 的文件夹加入排除项，然后修复环境。</translation>
    </message>
    <message>
        <source>Python used the system&apos;s code page for text that is UTF-8. Start it with PYTHONUTF8=1 (python -X utf8). If a file itself is in another encoding, save it as UTF-8.</source>
        <translation>Python 用系统代码页处理了 UTF-8 文本。请以 PYTHONUTF8=1（python -X utf8）启动；若文件本身是其他编码，请另存为 UTF-8。</translation>
    </message>
    <message>
        <source>Windows starts workers by running the main script again. Guard its entry with if __name__ == &quot;__main__&quot;, and use dataloader_num_workers=0 and num_proc=None.</source>
        <translation>Windows 通过重新运行主脚本来启动子进程。请用 if __name__ == &quot;__main__&quot; 保护入口，并设置 dataloader_num_workers=0、num_proc=None。</translation>
    </message>
    <message>
        <source>PyTorch for Windows is missing what several training processes need (libuv, NCCL). Do not start through torchrun or accelerate launch: train on one GPU in one process, or under WSL.</source>
        <translation>Windows 版 PyTorch 缺少多进程训练所需的部分（libuv、NCCL）。请不要通过 torchrun 或 accelerate launch 启动：用一张显卡单进程训练，或在 WSL 中训练。</translation>
    </message>
    <message>
        <source>libcuda was not found. Inside WSL put /usr/lib/wsl/lib first in LD_LIBRARY_PATH, update the NVIDIA driver on Windows (never install one inside WSL) and run wsl --update. Elsewhere install the NVIDIA driver.</source>
        <translation>找不到 libcuda。在 WSL 中请把 /usr/lib/wsl/lib 放在 LD_LIBRARY_PATH 最前面，在 Windows 上更新 NVIDIA 驱动（不要在 WSL 内安装驱动）并运行 wsl --update；其他系统请安装 NVIDIA 驱动。</translation>
    </message>
    <message>
        <source>This old bitsandbytes does not see the GPU. Check that nvidia-smi works here (in WSL: /dev/dxg, and /usr/lib/wsl/lib first in LD_LIBRARY_PATH), and install bitsandbytes 0.43 or newer.</source>
        <translation>旧版 bitsandbytes 看不到显卡。请确认此处 nvidia-smi 可用（WSL 中检查 /dev/dxg，并把 /usr/lib/wsl/lib 放在 LD_LIBRARY_PATH 最前），并安装 bitsandbytes 0.43 或更新版本。</translation>
    </message>
    <message>
        <source>WSL can&apos;t start a distribution. Turn on virtualization in the firmware and the Windows features &quot;Virtual Machine Platform&quot; and &quot;Windows Subsystem for Linux&quot;, restart, run wsl --update, then install a distribution.</source>
        <translation>WSL 无法启动发行版。请在固件中启用虚拟化，打开 Windows 功能“虚拟机平台”和“适用于 Linux 的 Windows 子系统”，重启后运行 wsl --update，再安装发行版。</translation>
    </message>
    <message>
        <source>  {path} = {value}</source>
        <translation>  {path} = {value}</translation>
    </message>
    <message>
        <source>&quot;{name}&quot; occurs twice</source>
        <translation>“{name}”出现了两次</translation>
    </message>
    <message>
        <source>8-bit products are off. {problem}</source>
        <translation>8 位矩阵乘法未启用。{problem}</translation>
    </message>
    <message>
        <source>8-bit products are on. {quality}</source>
        <translation>8 位矩阵乘法已启用。{quality}</translation>
    </message>
    <message>
        <source>A 4-bit gradient</source>
        <translation>4 位梯度</translation>
    </message>
    <message>
        <source>A 4-bit layer</source>
        <translation>4 位层</translation>
    </message>
    <message>
        <source>A Triton kernel</source>
        <translation>Triton 内核</translation>
    </message>
    <message>
        <source>A backward pass of plain modules has not begun.</source>
        <translation>普通模块的反向传播尚未开始。</translation>
    </message>
    <message>
        <source>A data set needs a name and at least one file.</source>
        <translation>数据集需要一个名称和至少一个文件。</translation>
    </message>
    <message>
        <source>A document of a micro-batch has no token, or more than the declared {max_length}.</source>
        <translation>微批次中有一个文档没有词元，或超过了声明的 {max_length} 个。</translation>
    </message>
    <message>
        <source>A gradient</source>
        <translation>梯度</translation>
    </message>
    <message>
        <source>A layer of the model has a width of {width}, which is not divisible by {step}.</source>
        <translation>模型有一层的宽度为 {width}，不能被 {step} 整除。</translation>
    </message>
    <message>
        <source>A loss</source>
        <translation>损失</translation>
    </message>
    <message>
        <source>A matrix product</source>
        <translation>矩阵乘法</translation>
    </message>
    <message>
        <source>A micro-batch has more {what} than the fixed size has room for.</source>
        <translation>微批次中的 {what} 超出了固定大小的容量。</translation>
    </message>
    <message>
        <source>A ring of {num_slots} slots can&apos;t be copied and computed on at once.</source>
        <translation>只有 {num_slots} 个槽位的环形缓冲区无法同时复制和计算。</translation>
    </message>
    <message>
        <source>A row of {length} tokens can&apos;t go into a micro-batch of {capacity_tokens}.</source>
        <translation>{length} 个词元的样本放不进容量为 {capacity_tokens} 个词元的微批次。</translation>
    </message>
    <message>
        <source>A run stops there.</source>
        <translation>运行会在此停止。</translation>
    </message>
    <message>
        <source>A sample needs a prompt.</source>
        <translation>生成样例需要提示词。</translation>
    </message>
    <message>
        <source>A tiny model does not learn on {place}: {losses}.</source>
        <translation>小模型在 {place} 上无法学习：{losses}。</translation>
    </message>
    <message>
        <source>Access token of the model hub: {place}</source>
        <translation>模型站的访问令牌：{place}</translation>
    </message>
    <message>
        <source>Activation checkpointing is off: transformers does not support it for this model.</source>
        <translation>激活检查点未启用：transformers 不支持在此模型上使用。</translation>
    </message>
    <message>
        <source>Adapters of rank {rank}: {names}.</source>
        <translation>秩为 {rank} 的适配器：{names}。</translation>
    </message>
    <message>
        <source>Added</source>
        <translation>加入时间</translation>
    </message>
    <message>
        <source>After step {step} the weight {name} is NaN or infinite. It was not saved.</source>
        <translation>第 {step} 步之后，权重 {name} 变为 NaN 或无穷大，因此未保存。</translation>
    </message>
    <message>
        <source>All {number:,} rows have the same answer.</source>
        <translation>全部 {number:,} 行的回答都相同。</translation>
    </message>
    <message>
        <source>Another export to {path} is in progress.</source>
        <translation>另一个导出正在写入 {path}。</translation>
    </message>
    <message>
        <source>Another process is using the run {run}.</source>
        <translation>另一个进程正在处理运行 {run}。</translation>
    </message>
    <message>
        <source>At most {num_tokens:,} tokens pass through the model at once.</source>
        <translation>每次最多有 {num_tokens:,} 个词元通过模型。</translation>
    </message>
    <message>
        <source>Attention&apos;s inputs</source>
        <translation>注意力的输入投影</translation>
    </message>
    <message>
        <source>Attention&apos;s output</source>
        <translation>注意力的输出投影</translation>
    </message>
    <message>
        <source>Attention: {name}.</source>
        <translation>注意力：{name}。</translation>
    </message>
    <message>
        <source>Before the first step</source>
        <translation>第一步之前</translation>
    </message>
    <message>
        <source>Bytes that don&apos;t fit the encoding</source>
        <translation>与编码不符的字节</translation>
    </message>
    <message>
        <source>Cause not recognized. Read the last error message of the log, or search for its text.</source>
        <translation>未能识别原因。请查看日志中最后一条错误信息，或搜索其文字。</translation>
    </message>
    <message>
        <source>Change them back to resume, or duplicate the run to start again.</source>
        <translation>请改回原值后继续，或复制该运行重新开始。</translation>
    </message>
    <message>
        <source>Choose a folder with at most {max_root_chars} characters, such as {anchor}Tunesmith.</source>
        <translation>请选择路径不超过 {max_root_chars} 个字符的文件夹，例如 {anchor}Tunesmith。</translation>
    </message>
    <message>
        <source>Choose a folder with its full path.</source>
        <translation>请用完整路径指定文件夹。</translation>
    </message>
    <message>
        <source>Column mapping: {problem}</source>
        <translation>列映射：{problem}</translation>
    </message>
    <message>
        <source>Continuing with activation checkpointing.</source>
        <translation>启用激活检查点后继续。</translation>
    </message>
    <message>
        <source>Deleted for good: {count}.</source>
        <translation>已永久删除：{count} 个。</translation>
    </message>
    <message>
        <source>Detached. The run continues in the background. To see it again: tunesmith follow {run}</source>
        <translation>已退出查看，训练在后台继续。再次查看：tunesmith follow {run}</translation>
    </message>
    <message>
        <source>Dropout runs in plain PyTorch.</source>
        <translation>Dropout 由原生 PyTorch 计算。</translation>
    </message>
    <message>
        <source>Examples as long as the whole context do not fit. How long yours are is not known yet.</source>
        <translation>长度占满整个上下文的样本放不下。你的样本有多长尚不清楚。</translation>
    </message>
    <message>
        <source>Install the program&apos;s own files for this user, check them, or remove them and what can be built again.</source>
        <translation>为当前用户安装程序自身的文件，检查它们，或删除它们以及可以重新生成的内容。</translation>
    </message>
    <message>
        <source>Loss</source>
        <translation>损失</translation>
    </message>
    <message>
        <source>Remove what Tunesmith wrote. Shows it first and asks; runs and models go only when named.

The program folder itself goes with its installer.</source>
        <translation>删除 Tunesmith 写入的内容：先列出，再询问；只有指明时才删除运行和模型。

程序文件夹本身由安装程序卸载。</translation>
    </message>
    <message>
        <source>Repair what the checks find, one fault at a time. Shows each repair first, asks, and checks it afterwards.

Runs, models and settings are never touched.</source>
        <translation>逐个修复检查发现的问题：先显示，再询问，修复后验证。

绝不改动运行、模型和设置。</translation>
    </message>
    <message>
        <source>Rows with special tokens of the model ({names}): {num_rows}. They are trained as control tokens.</source>
        <translation>有 {num_rows} 行含有模型的特殊词元（{names}），已按控制词元训练。</translation>
    </message>
    <message>
        <source>Rows with special tokens of the model ({names}): {num_rows}. They are trained as text.</source>
        <translation>有 {num_rows} 行含有模型的特殊词元（{names}），已按普通文本训练。</translation>
    </message>
    <message>
        <source>Run</source>
        <translation>运行</translation>
    </message>
    <message>
        <source>State</source>
        <translation>状态</translation>
    </message>
    <message>
        <source>Step</source>
        <translation>步</translation>
    </message>
    <message>
        <source>Steps: {steps}</source>
        <translation>步数：{steps}</translation>
    </message>
    <message>
        <source>The system or another program ended the training process (SIGKILL).</source>
        <translation>训练进程被系统或其他程序终止（SIGKILL）。</translation>
    </message>
    <message>
        <source>also take a folder that is not one of Tunesmith&apos;s own runs</source>
        <translation>即使不是此数据文件夹中的运行也移走</translation>
    </message>
    <message>
        <source>an unknown escape sequence. A backslash itself is written \\</source>
        <translation>反斜杠后的字符不是 JSON 转义，反斜杠本身要写成 \\</translation>
    </message>
    <message>
        <source>answer yes to every question</source>
        <translation>对所有问题回答“是”</translation>
    </message>
    <message>
        <source>estimate memory, steps and disk</source>
        <translation>估算显存、步数和磁盘占用</translation>
    </message>
    <message>
        <source>install what training needs, without the window</source>
        <translation>只安装训练所需的内容，不含窗口</translation>
    </message>
    <message>
        <source>GB18030 and GBK (Chinese)</source>
        <translation>GB18030 和 GBK（中文）</translation>
    </message>
    <message>
        <source>GPU {index}, {name}, has compute capability {capability}. Training needs {minimum} or higher.</source>
        <translation>GPU {index}（{name}）的计算能力为 {capability}，训练需要 {minimum} 或更高。</translation>
    </message>
    <message>
        <source>In plain PyTorch: {names}. {reason}</source>
        <translation>由原生 PyTorch 计算：{names}。{reason}</translation>
    </message>
    <message>
        <source>It computes {part} wrong on this computer: {excess}.</source>
        <translation>它在这台电脑上把 {part} 算错了：{excess}。</translation>
    </message>
    <message>
        <source>It does not support a sliding window.</source>
        <translation>它不支持滑动窗口。</translation>
    </message>
    <message>
        <source>It does not support a softcap.</source>
        <translation>它不支持 softcap。</translation>
    </message>
    <message>
        <source>It does not support {dtype} on this GPU.</source>
        <translation>它在此 GPU 上不支持 {dtype}。</translation>
    </message>
    <message>
        <source>It failed on this computer: {error}</source>
        <translation>它在这台电脑上失败了：{error}</translation>
    </message>
    <message>
        <source>It is not deterministic, as this run needs.</source>
        <translation>它不是确定性的，而此次运行要求确定性。</translation>
    </message>
    <message>
        <source>It needs a head size divisible by 8.</source>
        <translation>它要求注意力头的大小能被 8 整除。</translation>
    </message>
    <message>
        <source>It needs a head size of at most {size}, divisible by 8.</source>
        <translation>它要求注意力头的大小不超过 {size}，且能被 8 整除。</translation>
    </message>
    <message>
        <source>It needs a head size of at most {size}.</source>
        <translation>它要求注意力头的大小不超过 {size}。</translation>
    </message>
    <message>
        <source>It needs an NVIDIA GPU of compute capability 7.5.</source>
        <translation>它需要计算能力为 7.5 的 NVIDIA GPU。</translation>
    </message>
    <message>
        <source>It needs an NVIDIA GPU of compute capability 8.0.</source>
        <translation>它需要计算能力为 8.0 的 NVIDIA GPU。</translation>
    </message>
    <message>
        <source>It needs bfloat16 or float16.</source>
        <translation>它需要 bfloat16 或 float16。</translation>
    </message>
    <message>
        <source>It needs compute capability {needed}, and this GPU has {present}.</source>
        <translation>它需要计算能力 {needed}，而此 GPU 为 {present}。</translation>
    </message>
    <message>
        <source>It needs examples of one length, divisible by {tokens} tokens.</source>
        <translation>它要求样本长度一致，且能被 {tokens} 个词元整除。</translation>
    </message>
    <message>
        <source>Layers: {parts}.</source>
        <translation>各层：{parts}。</translation>
    </message>
    <message>
        <source>Moved to the trash: {folder}</source>
        <translation>已移到回收站：{folder}</translation>
    </message>
    <message>
        <source>Neither DISPLAY nor WAYLAND_DISPLAY is set.</source>
        <translation>DISPLAY 和 WAYLAND_DISPLAY 均未设置。</translation>
    </message>
    <message>
        <source>No NVIDIA driver is loaded on this computer.</source>
        <translation>这台电脑上没有加载 NVIDIA 驱动。</translation>
    </message>
    <message>
        <source>No step has finished for {seconds} s.</source>
        <translation>已有 {seconds} 秒没有完成任何一步。</translation>
    </message>
    <message>
        <source>Norms of queries and keys that can&apos;t run together: {query_norm}, {key_norm}.</source>
        <translation>查询和键的归一化无法一起运行：{query_norm}、{key_norm}。</translation>
    </message>
    <message>
        <source>Not fused in {num_unfused} of {num_layers} layers. {note}</source>
        <translation>{num_layers} 层中有 {num_unfused} 层未融合。{note}</translation>
    </message>
    <message>
        <source>Not {name}: {reason}</source>
        <translation>未使用 {name}：{reason}</translation>
    </message>
    <message>
        <source>On a processor, PyTorch multiplies the fused path&apos;s float16 buffers too slowly.</source>
        <translation>在处理器上，PyTorch 计算融合路径的 float16 缓冲区太慢。</translation>
    </message>
    <message>
        <source>On random tokens they change the loss by {loss_share}, and the cosine of the gradients is {cosine}.</source>
        <translation>在随机词元上，损失变化 {loss_share}，梯度余弦相似度为 {cosine}。</translation>
    </message>
    <message>
        <source>On this GPU, its backward pass does not support head sizes from 193 to 224.</source>
        <translation>在此 GPU 上，它的反向传播不支持 193 到 224 的注意力头大小。</translation>
    </message>
    <message>
        <source>One step on {device} took {time} and {memory} of memory.</source>
        <translation>在 {device} 上，一步耗时 {time}，占用显存或内存 {memory}。</translation>
    </message>
    <message>
        <source>PEFT would restore {num_restored} of {num_modules} trained modules. These would be lost: {modules}.</source>
        <translation>PEFT 只能还原 {num_modules} 个训练过的模块中的 {num_restored} 个。以下模块会丢失：{modules}。</translation>
    </message>
    <message>
        <source>Padding changes what this model computes, so only examples of one length share a micro-batch.</source>
        <translation>填充会影响此模型的计算结果，因此只有长度相同的样本才会放进同一个微批次。</translation>
    </message>
    <message>
        <source>Possible cause: {title}. {fix}</source>
        <translation>可能的原因：{title}。{fix}</translation>
    </message>
    <message>
        <source>Put the file on a local drive.</source>
        <translation>请把文件放到本地磁盘上。</translation>
    </message>
    <message>
        <source>PyTorch {version} does not support row scales on this GPU: {reason}</source>
        <translation>PyTorch {version} 在此 GPU 上不支持逐行缩放：{reason}</translation>
    </message>
    <message>
        <source>PyTorch {version} was built without CUDA.</source>
        <translation>PyTorch {version} 不带 CUDA。</translation>
    </message>
    <message>
        <source>Run wsl --shutdown, wait ten seconds, then try again.</source>
        <translation>请运行 wsl --shutdown，等待十秒后重试。</translation>
    </message>
    <message>
        <source>Runs train on the processor here.</source>
        <translation>这里的运行在处理器上训练。</translation>
    </message>
    <message>
        <source>Set it up on the Environment page (tunesmith wsl install), or train natively.</source>
        <translation>请在“环境”页设置（或运行 tunesmith wsl install），也可以直接在 Windows 上训练。</translation>
    </message>
    <message>
        <source>Several adapters are active.</source>
        <translation>同时启用了多个适配器。</translation>
    </message>
    <message>
        <source>Step {step}: the loss is NaN or infinite. The update was skipped.</source>
        <translation>第 {step} 步：损失为 NaN 或无穷大，已跳过这次更新。</translation>
    </message>
    <message>
        <source>Step {step}: {error}</source>
        <translation>第 {step} 步：{error}</translation>
    </message>
    <message>
        <source>The 8-bit copies of the weights don&apos;t fit into VRAM.</source>
        <translation>权重的 8 位副本放不进显存。</translation>
    </message>
    <message>
        <source>The CPU does not support them.</source>
        <translation>CPU 不支持。</translation>
    </message>
    <message>
        <source>The CPU uses plain PyTorch.</source>
        <translation>CPU 使用原生 PyTorch。</translation>
    </message>
    <message>
        <source>The GPU has a compute capability below 7.5, so PyTorch&apos;s own kernels are used.</source>
        <translation>GPU 的计算能力低于 7.5，因此使用 PyTorch 自带的内核。</translation>
    </message>
    <message>
        <source>The MLP</source>
        <translation>MLP</translation>
    </message>
    <message>
        <source>The MLP&apos;s inputs</source>
        <translation>MLP 的输入投影</translation>
    </message>
    <message>
        <source>The MLP&apos;s output</source>
        <translation>MLP 的输出投影</translation>
    </message>
    <message>
        <source>The activation {kind} is not supported.</source>
        <translation>不支持激活函数 {kind}。</translation>
    </message>
    <message>
        <source>The adapter has a bias.</source>
        <translation>适配器带有偏置。</translation>
    </message>
    <message>
        <source>The backward pass of layer {layer} does not follow its forward pass.</source>
        <translation>第 {layer} 层的反向传播没有接在它的前向传播之后。</translation>
    </message>
    <message>
        <source>The chat template of {path} does not use {names}.</source>
        <translation>{path} 的对话模板没有用到 {names}。</translation>
    </message>
    <message>
        <source>The chat template of {path} ends answers without a stop token, so the model doesn&apos;t learn when to stop.</source>
        <translation>{path} 的对话模板在回答结尾没有停止符，模型学不会何时停止。</translation>
    </message>
    <message>
        <source>The decoder&apos;s attention is not causal.</source>
        <translation>解码器的注意力不是因果的。</translation>
    </message>
    <message>
        <source>The decoder&apos;s layers use different rotary embeddings.</source>
        <translation>解码器各层使用不同的旋转位置编码。</translation>
    </message>
    <message>
        <source>The documents of a micro-batch don&apos;t cover its {num_tokens} tokens.</source>
        <translation>微批次中的文档没有覆盖全部 {num_tokens} 个词元。</translation>
    </message>
    <message>
        <source>The embedding is kept in system memory.</source>
        <translation>词嵌入保存在内存中。</translation>
    </message>
    <message>
        <source>The engine did not stop and was ended. Steps after {last_checkpoint_step} were not saved.</source>
        <translation>训练引擎没有按要求停止，已被强制结束；第 {last_checkpoint_step} 步之后的进度未保存。</translation>
    </message>
    <message>
        <source>The Python of the environment {folder} is missing.</source>
        <translation>环境 {folder} 中已没有 Python。</translation>
    </message>
    <message>
        <source>The fused kernels are switched off.</source>
        <translation>融合内核已关闭。</translation>
    </message>
    <message>
        <source>The fused model&apos;s loss differs from that of transformers ({ours} and {theirs} nats per token).</source>
        <translation>融合模型的损失与 transformers 不一致（每个词元 {ours} 与 {theirs} nat）。</translation>
    </message>
    <message>
        <source>The fused path does not support this objective.</source>
        <translation>融合路径不支持这种训练目标。</translation>
    </message>
    <message>
        <source>The journal has version {major}, and this program reads {protocol}.</source>
        <translation>日志的版本为 {major}，本程序只能读取 {protocol}。</translation>
    </message>
    <message>
        <source>The loss includes a term that balances the experts (output_router_logits).</source>
        <translation>损失中包含专家负载均衡项（output_router_logits）。</translation>
    </message>
    <message>
        <source>The loss was NaN or infinite for {num_steps} steps in a row, up to step {step}.</source>
        <translation>截至第 {step} 步，损失已连续 {num_steps} 步为 NaN 或无穷大。</translation>
    </message>
    <message>
        <source>The model has a chat template, but prompts and completions are joined as plain text. In a chat, the model will see a format that it was not trained on.</source>
        <translation>模型有对话模板，但提示词和回答被拼成了纯文本。对话时，模型会遇到训练中没有见过的格式。</translation>
    </message>
    <message>
        <source>The model has no layer named {names}. Its linear layers are {known}.</source>
        <translation>模型中没有名为 {names} 的层。它的线性层有：{known}。</translation>
    </message>
    <message>
        <source>The model runs in plain PyTorch. {reason}</source>
        <translation>模型由原生 PyTorch 运行。{reason}</translation>
    </message>
    <message>
        <source>The model&apos;s rotary table depends on the length of an example, and these examples need several tables.</source>
        <translation>模型的旋转位置编码表取决于样本长度，而这些样本需要多张表。</translation>
    </message>
    <message>
        <source>The output projection</source>
        <translation>输出投影</translation>
    </message>
    <message>
        <source>The output projection can&apos;t be computed in chunks. {reason}</source>
        <translation>输出投影无法分块计算。{reason}</translation>
    </message>
    <message>
        <source>The process that tests kernels crashed with exit code {code}.</source>
        <translation>测试内核的进程崩溃，退出码 {code}。</translation>
    </message>
    <message>
        <source>The process that tests kernels hung for {seconds} s.</source>
        <translation>测试内核的进程已 {seconds} 秒没有响应。</translation>
    </message>
    <message>
        <source>The processes of the run {run} ended without a result. See {log_path}.</source>
        <translation>运行 {run} 的进程已结束，但没有结果；请查看 {log_path}。</translation>
    </message>
    <message>
        <source>The run needs a GPU, but PyTorch finds none.</source>
        <translation>此次运行需要 GPU，但 PyTorch 没有找到。</translation>
    </message>
    <message>
        <source>The run needs a GPU, but the installed PyTorch was built without CUDA.</source>
        <translation>此次运行需要 GPU，但已安装的 PyTorch 不带 CUDA。</translation>
    </message>
    <message>
        <source>The run did not accept the command: {reason}</source>
        <translation>运行拒绝了该请求：{reason}</translation>
    </message>
    <message>
        <source>The run {run} ended before it answered.</source>
        <translation>运行 {run} 在回应之前就结束了。</translation>
    </message>
    <message>
        <source>The run {run} is finished.</source>
        <translation>运行 {run} 已完成。</translation>
    </message>
    <message>
        <source>The run {run} is not in progress.</source>
        <translation>运行 {run} 未在进行。</translation>
    </message>
    <message>
        <source>The run {run} is still in progress.</source>
        <translation>运行 {run} 仍在进行。</translation>
    </message>
    <message>
        <source>The run {run} reached step {step} but has no complete checkpoint.</source>
        <translation>运行 {run} 已到第 {step} 步，但没有完整的检查点。</translation>
    </message>
    <message>
        <source>The supervisor of the run {run} did not come up within {lease_wait_s:g} s.</source>
        <translation>运行 {run} 的监控进程未能在 {lease_wait_s:g} 秒内启动。</translation>
    </message>
    <message>
        <source>The supervisor of {run} ended at once with exit code {code}.</source>
        <translation>{run} 的监控进程一启动就退出了，退出码为 {code}。</translation>
    </message>
    <message>
        <source>The training process was ended by {name}.</source>
        <translation>训练进程被 {name} 终止。</translation>
    </message>
    <message>
        <source>There is no run named {name!r} in {parent}.</source>
        <translation>{parent} 中没有名为 {name!r} 的运行。</translation>
    </message>
    <message>
        <source>There was not enough memory for a sample. It was skipped.</source>
        <translation>内存不足，已跳过生成样例。</translation>
    </message>
    <message>
        <source>They need a run in bfloat16.</source>
        <translation>它需要以 bfloat16 运行。</translation>
    </message>
    <message>
        <source>They need compute capability 8.9 (RTX 40, H100 or newer), and this GPU has {capability}.</source>
        <translation>它需要计算能力 8.9（RTX 40、H100 或更新），而此 GPU 为 {capability}。</translation>
    </message>
    <message>
        <source>They would change this model too much. {quality}</source>
        <translation>它对此模型的影响太大。{quality}</translation>
    </message>
    <message>
        <source>This PyTorch has no cuDNN attention.</source>
        <translation>此版本的 PyTorch 没有 cuDNN 注意力。</translation>
    </message>
    <message>
        <source>This run has no evaluation data.</source>
        <translation>此次运行没有评估数据。</translation>
    </message>
    <message>
        <source>This system has no wsl.exe: the Windows Subsystem for Linux comes with Windows 10 21H2 and Windows 11.</source>
        <translation>系统中没有 wsl.exe：适用于 Linux 的 Windows 子系统需要 Windows 10 21H2 或 Windows 11。</translation>
    </message>
    <message>
        <source>Tile {number} of layer {layer} is asked for out of its turn.</source>
        <translation>第 {layer} 层的分块 {number} 未按顺序请求。</translation>
    </message>
    <message>
        <source>Training in the Windows Subsystem for Linux was not set up yet.</source>
        <translation>尚未设置在 WSL 中训练。</translation>
    </message>
    <message>
        <source>Triton can&apos;t be loaded: {error}</source>
        <translation>无法加载 Triton：{error}</translation>
    </message>
    <message>
        <source>Triton kernels: {names}.</source>
        <translation>Triton 内核：{names}。</translation>
    </message>
    <message>
        <source>Update Windows, or train natively.</source>
        <translation>请更新 Windows，或直接在 Windows 上训练。</translation>
    </message>
    <message>
        <source>Without a GPU Triton is not needed.</source>
        <translation>没有 GPU 时不需要 Triton。</translation>
    </message>
    <message>
        <source>Without adapters: {names}.</source>
        <translation>不带适配器：{names}。</translation>
    </message>
    <message>
        <source>a 7-Zip archive</source>
        <translation>7-Zip 压缩包</translation>
    </message>
    <message>
        <source>a list</source>
        <translation>列表</translation>
    </message>
    <message>
        <source>a number</source>
        <translation>数字</translation>
    </message>
    <message>
        <source>a text</source>
        <translation>文本</translation>
    </message>
    <message>
        <source>an SQLite database</source>
        <translation>SQLite 数据库</translation>
    </message>
    <message>
        <source>an encoder-decoder</source>
        <translation>编码器-解码器模型</translation>
    </message>
    <message>
        <source>an object</source>
        <translation>对象</translation>
    </message>
    <message>
        <source>asked {run} to stop</source>
        <translation>已请求停止 {run}</translation>
    </message>
    <message>
        <source>bitsandbytes can&apos;t be loaded: {error}</source>
        <translation>无法加载 bitsandbytes：{error}</translation>
    </message>
    <message>
        <source>each item of the list must be an object such as {...}.</source>
        <translation>列表中的每一项都必须是 {...} 这样的对象。</translation>
    </message>
    <message>
        <source>error[{code}]: {title}</source>
        <translation>错误[{code}]：{title}</translation>
    </message>
    <message>
        <source>finished after {step} steps</source>
        <translation>已完成，共 {step} 步</translation>
    </message>
    <message>
        <source>has no assistant answer</source>
        <translation>没有助手的回答</translation>
    </message>
    <message>
        <source>has separate weights for each language and does not know which to train</source>
        <translation>为每种语言使用不同的权重，无法判断该训练哪些</translation>
    </message>
    <message>
        <source>hint: {hint}</source>
        <translation>建议：{hint}</translation>
    </message>
    <message>
        <source>contains an adapter, not a model. Choose the base model that it was trained on</source>
        <translation>里面是适配器，不是模型。请选择训练它时所用的基础模型</translation>
    </message>
    <message>
        <source>contains no JSON object</source>
        <translation>内容不是 JSON 对象</translation>
    </message>
    <message>
        <source>contains no messages</source>
        <translation>没有消息</translation>
    </message>
    <message>
        <source>contains no weight_map</source>
        <translation>没有 weight_map</translation>
    </message>
    <message>
        <source>is a Git LFS pointer, not the file itself. Run git lfs pull, or download the model again</source>
        <translation>只是 Git LFS 指针，不是文件本身。请运行 git lfs pull，或重新下载模型</translation>
    </message>
    <message>
        <source>is empty</source>
        <translation>为空</translation>
    </message>
    <message>
        <source>is missing the tensor {name} that {index_name} lists</source>
        <translation>缺少 {index_name} 中列出的张量 {name}</translation>
    </message>
    <message>
        <source>is not a folder. A model is a folder with config.json and safetensors files, or a hub id such as org/name</source>
        <translation>不是文件夹。模型应为包含 config.json 和 safetensors 文件的文件夹，或 org/name 这样的 Hub 标识</translation>
    </message>
    <message>
        <source>keep everything</source>
        <translation>层保留全部激活</translation>
    </message>
    <message>
        <source>keep everything in system memory</source>
        <translation>层把全部激活保留在内存中</translation>
    </message>
    <message>
        <source>largest error</source>
        <translation>最大误差</translation>
    </message>
    <message>
        <source>line {line}: {message}</source>
        <translation>第 {line} 行：{message}</translation>
    </message>
    <message>
        <source>loss {loss} at step {step}</source>
        <translation>第 {step} 步的损失：{loss}</translation>
    </message>
    <message>
        <source>mean square error</source>
        <translation>均方误差</translation>
    </message>
    <message>
        <source>message {number} has {shown}</source>
        <translation>第 {number} 条消息{shown}</translation>
    </message>
    <message>
        <source>message {number} must be an object, not {kind}</source>
        <translation>第 {number} 条消息必须是对象，而不是{kind}</translation>
    </message>
    <message>
        <source>message {number} must have a text as its content, not {kind}</source>
        <translation>第 {number} 条消息的内容必须是文本，而不是{kind}</translation>
    </message>
    <message>
        <source>message {number}: a tool call has no function name</source>
        <translation>第 {number} 条消息：有一个工具调用没有函数名</translation>
    </message>
    <message>
        <source>message {number}: the answer is empty</source>
        <translation>第 {number} 条消息：回答为空</translation>
    </message>
    <message>
        <source>message {number}: the tool calls must be a list of objects</source>
        <translation>第 {number} 条消息：工具调用必须是对象列表</translation>
    </message>
    <message>
        <source>model ({kind}) changes what its decoder reads.</source>
        <translation>model（{kind}）会改动解码器的输入。</translation>
    </message>
    <message>
        <source>model.rotary_emb ({kind}) has an unsupported table.</source>
        <translation>model.rotary_emb（{kind}）的编码表不受支持。</translation>
    </message>
    <message>
        <source>model.rotary_emb changes its table with the length of the text (dynamic).</source>
        <translation>model.rotary_emb 会随文本长度改变编码表（dynamic）。</translation>
    </message>
    <message>
        <source>more text follows the JSON object.</source>
        <translation>JSON 对象之后还有多余的文本。</translation>
    </message>
    <message>
        <source>must be a list of messages, not {kind}</source>
        <translation>必须是消息列表，而不是{kind}</translation>
    </message>
    <message>
        <source>must be a list of objects, each describing a tool</source>
        <translation>必须是对象列表，每个对象描述一个工具</translation>
    </message>
    <message>
        <source>must be a text, not {kind}</source>
        <translation>必须是文本，而不是{kind}</translation>
    </message>
    <message>
        <source>names neither a model_type nor an architecture</source>
        <translation>没有写明 model_type 或 architectures</translation>
    </message>
    <message>
        <source>names {name!r}, which is not a safetensors file in this folder</source>
        <translation>列出了 {name!r}，但它不是此文件夹中的 safetensors 文件</translation>
    </message>
    <message>
        <source>no list of rows: the file must hold [{...}, ...] or {&quot;data&quot;: [{...}, ...]}.</source>
        <translation>没有数据行列表：文件内容必须是 [{...}, ...] 或 {&quot;data&quot;: [{...}, ...]}。</translation>
    </message>
    <message>
        <source>no role</source>
        <translation>没有角色</translation>
    </message>
    <message>
        <source>not a language model on its own</source>
        <translation>不能单独使用的语言模型</translation>
    </message>
    <message>
        <source>not valid JSON: {msg}.</source>
        <translation>JSON 无效：{msg}。</translation>
    </message>
    <message>
        <source>nothing</source>
        <translation>空值</translation>
    </message>
    <message>
        <source>nvidia-smi lists no GPU inside {distribution}.</source>
        <translation>{distribution} 中的 nvidia-smi 未列出任何 GPU。</translation>
    </message>
    <message>
        <source>recompute all but the last product</source>
        <translation>层重算除最后一次矩阵乘法外的全部激活</translation>
    </message>
    <message>
        <source>recompute all but the last product from an input in system memory</source>
        <translation>层从内存中的输入重算除最后一次矩阵乘法外的全部激活</translation>
    </message>
    <message>
        <source>recompute attention and the MLP</source>
        <translation>层重算注意力和 MLP</translation>
    </message>
    <message>
        <source>recompute attention and the MLP and keep the rest in system memory</source>
        <translation>层重算注意力和 MLP，其余保留在内存中</translation>
    </message>
    <message>
        <source>recompute the MLP</source>
        <translation>层重算 MLP</translation>
    </message>
    <message>
        <source>recompute the MLP and keep the rest in system memory</source>
        <translation>层重算 MLP，其余保留在内存中</translation>
    </message>
    <message>
        <source>run {run} in {path}</source>
        <translation>运行 {run}，位于 {path}</translation>
    </message>
    <message>
        <source>saved step {step} in {path}</source>
        <translation>第 {step} 步已保存到 {path}</translation>
    </message>
    <message>
        <source>see: {address}</source>
        <translation>参见：{address}</translation>
    </message>
    <message>
        <source>splits texts into chunks of a fixed length, so it can&apos;t train on examples of any length</source>
        <translation>把文本切成固定长度的块，无法用任意长度的样本训练</translation>
    </message>
    <message>
        <source>stopped at step {step}. To continue: tunesmith resume {run}</source>
        <translation>已在第 {step} 步停止。继续训练：tunesmith resume {run}</translation>
    </message>
    <message>
        <source>the Parquet file is cut short.</source>
        <translation>Parquet 文件不完整。</translation>
    </message>
    <message>
        <source>the Parquet file is damaged.</source>
        <translation>Parquet 文件已损坏。</translation>
    </message>
    <message>
        <source>the file can&apos;t be read: {reason}</source>
        <translation>无法读取文件：{reason}</translation>
    </message>
    <message>
        <source>delete them for good</source>
        <translation>永久删除它们</translation>
    </message>
    <message>
        <source>The command is not valid</source>
        <translation>命令无效</translation>
    </message>
    <message>
        <source>Only runs that Tunesmith made, in its own folder, are deleted without asking.</source>
        <translation>只有 Tunesmith 在自己的文件夹中建立的运行才会直接删除。</translation>
    </message>
    <message>
        <source>Look at what is in the folder. To move it to the trash anyway, add --force.</source>
        <translation>请先查看文件夹里的内容。如果仍要移到回收站，请加上 --force。</translation>
    </message>
    <message>
        <source>byte 0x{byte:02X} does not fit the encoding of the file</source>
        <translation>字节 0x{byte:02X} 与文件的编码不符</translation>
    </message>
    <message>
        <source>the file can&apos;t be read: {reason}.</source>
        <translation>无法读取文件：{reason}。</translation>
    </message>
    <message>
        <source>the file is empty</source>
        <translation>文件为空</translation>
    </message>
    <message>
        <source>the file is missing</source>
        <translation>缺少此文件</translation>
    </message>
    <message>
        <source>the file is missing, so {shards} can&apos;t be placed</source>
        <translation>缺少此文件，无法确定 {shards} 的位置</translation>
    </message>
    <message>
        <source>the header names the column &quot;{name}&quot; twice.</source>
        <translation>表头中的列名“{name}”重复。</translation>
    </message>
    <message>
        <source>the line is longer than {max_row_characters:,} characters.</source>
        <translation>此行超过 {max_row_characters:,} 个字符。</translation>
    </message>
    <message>
        <source>the line must hold a JSON object such as {...}.</source>
        <translation>此行必须是 {...} 这样的 JSON 对象。</translation>
    </message>
    <message>
        <source>the manifest is of step {step}</source>
        <translation>清单属于第 {step} 步</translation>
    </message>
    <message>
        <source>the safetensors header is malformed</source>
        <translation>safetensors 文件头格式错误</translation>
    </message>
    <message>
        <source>the safetensors header is not valid JSON</source>
        <translation>safetensors 文件头不是有效的 JSON</translation>
    </message>
    <message>
        <source>the tokenizer is missing</source>
        <translation>缺少分词器</translation>
    </message>
    <message>
        <source>true or false</source>
        <translation>布尔值</translation>
    </message>
    <message>
        <source>version {version} is not supported</source>
        <translation>不支持版本 {version}</translation>
    </message>
    <message>
        <source>wsl.exe can&apos;t be started: {reason}.</source>
        <translation>无法启动 wsl.exe：{reason}。</translation>
    </message>
    <message>
        <source>wsl.exe did not answer within {timeout_s:g} s.</source>
        <translation>wsl.exe 在 {timeout_s:g} 秒内没有回应。</translation>
    </message>
    <message>
        <source>{count} pieces of the MLP in system memory</source>
        <translation>另有 {count} 块 MLP 激活保留在内存中</translation>
    </message>
    <message>
        <source>{count} trained weights, such as {name}, never see text.</source>
        <translation>有 {count} 个参与训练的权重（如 {name}）接触不到文本。</translation>
    </message>
    <message>
        <source>{count} {what}</source>
        <translation>{count} {what}</translation>
    </message>
    <message>
        <source>{error}</source>
        <translation>{error}</translation>
    </message>
    <message>
        <source>{final}: {problem}. It was written a moment ago.</source>
        <translation>{final}：{problem}。它刚刚才写入。</translation>
    </message>
    <message>
        <source>{folder} for environments and caches can&apos;t be written: {reason}. {need}.</source>
        <translation>无法写入存放环境和缓存的 {folder}：{reason}。{need}。</translation>
    </message>
    <message>
        <source>{folder}: a checkpoint needs {size:.0f} MiB, but only {free:.0f} MiB are free.</source>
        <translation>{folder}：检查点需要 {size:.0f} MiB，但仅剩 {free:.0f} MiB。</translation>
    </message>
    <message>
        <source>{folder}: a model of type {kind} is an encoder-decoder.</source>
        <translation>{folder}：{kind} 是编码器-解码器模型。</translation>
    </message>
    <message>
        <source>{folder}: a model of type {model_type} is {kind}.</source>
        <translation>{folder}：{model_type} 类型的模型是{kind}。</translation>
    </message>
    <message>
        <source>{folder}: model_type is missing.</source>
        <translation>{folder}：缺少 model_type。</translation>
    </message>
    <message>
        <source>{folder}: models of type {model_type} are not supported by the installed transformers.</source>
        <translation>{folder}：已安装的 transformers 不支持 {model_type} 类型的模型。</translation>
    </message>
    <message>
        <source>{folder}: the weights are in pickle format.</source>
        <translation>{folder}：权重为 pickle 格式。</translation>
    </message>
    <message>
        <source>{folder}: {model_type} {reason}.</source>
        <translation>{folder}：{model_type} {reason}。</translation>
    </message>
    <message>
        <source>{gib} GiB are planned.</source>
        <translation>计划使用 {gib} GiB。</translation>
    </message>
    <message>
        <source>{kind} changes its logits in an unsupported way.</source>
        <translation>{kind} 改动 logits 的方式不受支持。</translation>
    </message>
    <message>
        <source>{kind} has no model and lm_head side by side.</source>
        <translation>{kind} 没有并列的 model 和 lm_head。</translation>
    </message>
    <message>
        <source>{kind} is missing a part that is needed: {error}.</source>
        <translation>{kind} 缺少必需的部分：{error}。</translation>
    </message>
    <message>
        <source>{kind} is not a causal model: changing a token also changed the predictions before it.</source>
        <translation>{kind} 不是因果语言模型：改动一个词元，它前面的预测也会改变。</translation>
    </message>
    <message>
        <source>{kind} is not a supported linear layer.</source>
        <translation>不支持 {kind} 这种线性层。</translation>
    </message>
    <message>
        <source>{label} {error}, allowed {allowed}</source>
        <translation>{label} {error}，允许 {allowed}</translation>
    </message>
    <message>
        <source>{message}
The report could not be written: {error}.</source>
        <translation>{message}
无法写入报告：{error}。</translation>
    </message>
    <message>
        <source>{message}
The report is in {path}.</source>
        <translation>{message}
报告位于 {path}。</translation>
    </message>
    <message>
        <source>{model} is not a model folder.</source>
        <translation>{model} 不是模型文件夹。</translation>
    </message>
    <message>
        <source>{name} ({kind}) changes its embedding in an unsupported way.</source>
        <translation>{name}（{kind}）改动词嵌入的方式不受支持。</translation>
    </message>
    <message>
        <source>{name} ({kind}) combines its parts in an unsupported order.</source>
        <translation>{name}（{kind}）各部分的组合顺序不受支持。</translation>
    </message>
    <message>
        <source>{name} ({kind}) doesn&apos;t compute what its attributes say.</source>
        <translation>{name}（{kind}）的计算与它的属性不符。</translation>
    </message>
    <message>
        <source>{name} ({kind}) is a norm with an unsupported formula.</source>
        <translation>{name}（{kind}）的归一化公式不受支持。</translation>
    </message>
    <message>
        <source>{name} ({kind}) is missing a projection or a size that is needed.</source>
        <translation>{name}（{kind}）缺少必需的投影或尺寸。</translation>
    </message>
    <message>
        <source>{name} ({kind}) is not a gated MLP.</source>
        <translation>{name}（{kind}）不是门控 MLP。</translation>
    </message>
    <message>
        <source>{name} ({kind}) is not a linear layer.</source>
        <translation>{name}（{kind}）不是线性层。</translation>
    </message>
    <message>
        <source>{name} ({kind}) is not a plain embedding.</source>
        <translation>{name}（{kind}）不是普通的词嵌入。</translation>
    </message>
    <message>
        <source>{name} ({kind}) is not supported: its code uses {names}.</source>
        <translation>不支持 {name}（{kind}）：它的代码用到了 {names}。</translation>
    </message>
    <message>
        <source>{name} can&apos;t be read: {error}</source>
        <translation>无法读取 {name}：{error}</translation>
    </message>
    <message>
        <source>{name} fits neither one head nor all heads together.</source>
        <translation>{name} 既不符合单个注意力头，也不符合全部注意力头。</translation>
    </message>
    <message>
        <source>{name} has its norms ({names}) in unsupported places.</source>
        <translation>{name} 的归一化层（{names}）位置不受支持。</translation>
    </message>
    <message>
        <source>{name} has {num_outputs} outputs for {num_inputs} inputs.</source>
        <translation>{name} 有 {num_outputs} 个输出，却有 {num_inputs} 个输入。</translation>
    </message>
    <message>
        <source>{name} is missing</source>
        <translation>缺少 {name}</translation>
    </message>
    <message>
        <source>{name} is trained, and only linear layers of the decoder can be trained fused.</source>
        <translation>{name} 参与训练，而融合训练只支持解码器的线性层。</translation>
    </message>
    <message>
        <source>{name} uses dropout ({attribute} {share:g}).</source>
        <translation>{name} 使用 dropout（{attribute} {share:g}）。</translation>
    </message>
    <message>
        <source>{name} was changed after it was saved</source>
        <translation>{name} 在保存后被改动</translation>
    </message>
    <message>
        <source>{name}: {path}</source>
        <translation>{name}：{path}</translation>
    </message>
    <message>
        <source>{num_documents} documents of {shortest} to {longest} tokens (bound {max_length}, {num_bounds} bounds) don&apos;t cover {num_tokens} tokens.</source>
        <translation>{num_documents} 个长度为 {shortest} 到 {longest} 个词元的文档（上限 {max_length}，{num_bounds} 个边界）没有覆盖 {num_tokens} 个词元。</translation>
    </message>
    <message>
        <source>{num_tokens} tokens don&apos;t fit into buffers for {capacity_tokens}.</source>
        <translation>{num_tokens} 个词元放不进容量为 {capacity_tokens} 的缓冲区。</translation>
    </message>
    <message>
        <source>{num_tokens} tokens in one micro-batch are too many for 32-bit bounds.</source>
        <translation>一个微批次中有 {num_tokens} 个词元，超出了 32 位边界。</translation>
    </message>
    <message>
        <source>{num_tokens} tokens in {num_documents} examples are too many for its 32-bit offsets.</source>
        <translation>{num_documents} 个样本共 {num_tokens} 个词元，超出了它的 32 位偏移。</translation>
    </message>
    <message>
        <source>{operation}: no progress for {seconds} s, so it was stopped.</source>
        <translation>{operation}：{seconds} 秒没有进展，已停止。</translation>
    </message>
    <message>
        <source>{operation}: the process ended with exit code {code} and without a result.</source>
        <translation>{operation}：进程以退出码 {code} 结束，没有给出结果。</translation>
    </message>
    <message>
        <source>{path} can&apos;t be reached from inside the subsystem.</source>
        <translation>从子系统内部无法访问 {path}。</translation>
    </message>
    <message>
        <source>{path} does not exist.</source>
        <translation>{path} 不存在。</translation>
    </message>
    <message>
        <source>{path} has no chat template.</source>
        <translation>{path} 没有对话模板。</translation>
    </message>
    <message>
        <source>{path} has no fast tokenizer.</source>
        <translation>{path} 没有快速分词器。</translation>
    </message>
    <message>
        <source>{path}, line {line}</source>
        <translation>{path} 第 {line} 行</translation>
    </message>
    <message>
        <source>{path}, row {row}</source>
        <translation>{path} 第 {row} 行</translation>
    </message>
    <message>
        <source>{path}: the Parquet file has no rows.</source>
        <translation>{path}：Parquet 文件中没有数据行。</translation>
    </message>
    <message>
        <source>{path}: the file has no rows.</source>
        <translation>{path}：文件中没有数据行。</translation>
    </message>
    <message>
        <source>{path}: the file contains only blank lines.</source>
        <translation>{path}：文件中只有空行。</translation>
    </message>
    <message>
        <source>{path}: the file is empty.</source>
        <translation>{path}：文件为空。</translation>
    </message>
    <message>
        <source>{path}: the file is not UTF-8 text.</source>
        <translation>{path}：文件不是 UTF-8 文本。</translation>
    </message>
    <message>
        <source>{path}: {cause}.</source>
        <translation>{path}：{cause}。</translation>
    </message>
    <message>
        <source>{path}: {problem}</source>
        <translation>{path}：{problem}</translation>
    </message>
    <message>
        <source>{path}: {problem}.</source>
        <translation>{path}：{problem}。</translation>
    </message>
    <message>
        <source>{place}, column &quot;{columns}&quot;: {problem}.</source>
        <translation>{place}，“{columns}”列：{problem}。</translation>
    </message>
    <message>
        <source>{place}: the chat template does not write the tool calls of message {number}.</source>
        <translation>{place}：对话模板没有写出第 {number} 条消息的工具调用。</translation>
    </message>
    <message>
        <source>{place}: the chat template hides where the answer in message {number} begins and ends.</source>
        <translation>{place}：从对话模板看不出第 {number} 条消息中的回答从哪里开始、到哪里结束。</translation>
    </message>
    <message>
        <source>{place}: the chat template rejects this chat: {error}.</source>
        <translation>{place}：对话模板不接受这段对话：{error}。</translation>
    </message>
    <message>
        <source>{place}: {problem}</source>
        <translation>{place}：{problem}</translation>
    </message>
    <message>
        <source>{place}no space is left on the disk.</source>
        <translation>{place}磁盘空间已用完。</translation>
    </message>
    <message>
        <source>{place}the path is too long.</source>
        <translation>{place}路径过长。</translation>
    </message>
    <message>
        <source>{place}the program is damaged and can&apos;t be started.</source>
        <translation>{place}程序已损坏，无法启动。</translation>
    </message>
    <message>
        <source>{place}{reason}.</source>
        <translation>{place}{reason}。</translation>
    </message>
    <message>
        <source>{reason} Even one example at a time with the fewest activations does not fit.</source>
        <translation>{reason} 即使每次只用一个样本、保留最少的激活，也放不下。</translation>
    </message>
    <message>
        <source>{reason} {words}</source>
        <translation>{reason} {words}</translation>
    </message>
    <message>
        <source>{root} can&apos;t be written: {reason}.</source>
        <translation>无法写入 {root}：{reason}。</translation>
    </message>
    <message>
        <source>{root} {reason}.</source>
        <translation>{root} {reason}。</translation>
    </message>
    <message>
        <source>{runs_dir}: {free_bytes} MiB are free. The checkpoints of this run need {needed_bytes} MiB.</source>
        <translation>{runs_dir}：可用空间 {free_bytes} MiB，本次运行的检查点需要 {needed_bytes} MiB。</translation>
    </message>
    <message>
        <source>{runs_dir}: {reason}.</source>
        <translation>{runs_dir}：{reason}。</translation>
    </message>
    <message>
        <source>{source}: the file can&apos;t be converted: {error}</source>
        <translation>{source}：无法转换此文件：{error}</translation>
    </message>
    <message>
        <source>{source}: this is not a GGUF file.</source>
        <translation>{source}：这不是 GGUF 文件。</translation>
    </message>
    <message>
        <source>{source}: unrecognized format. The columns are {found}.</source>
        <translation>{source}：无法识别格式。现有的列：{found}。</translation>
    </message>
    <message>
        <source>{source}: version {version} is newer than {spec_version}, the newest version that this program reads.</source>
        <translation>{source}：版本 {version} 比本程序能读取的最新版本 {spec_version} 还新。</translation>
    </message>
    <message>
        <source>{source}: {reason}.</source>
        <translation>{source}：{reason}。</translation>
    </message>
    <message>
        <source>{text} is not NAME:BATCH:SEQ followed by any of {extras}.</source>
        <translation>{text} 的格式不对：应为 NAME:BATCH:SEQ，后面可加 {extras}。</translation>
    </message>
    <message>
        <source>{title}: {evidence}</source>
        <translation>{title}：{evidence}</translation>
    </message>
    <message>
        <source>{title}: {problem}</source>
        <translation>{title}：{problem}</translation>
    </message>
    <message>
        <source>{upper}{message}.</source>
        <translation>{upper}{message}。</translation>
    </message>
    <message>
        <source>{what} on {device}: the relative error is {error}. At most {allowed} is allowed.</source>
        <translation>{device} 上的{what}：相对误差为 {error}，最多允许 {allowed}。</translation>
    </message>
    <message>
        <source>{what}: {reason}</source>
        <translation>{what}：{reason}</translation>
    </message>
    <message>
        <source>{where}: {reason}</source>
        <translation>{where}：{reason}</translation>
    </message>
    <message>
        <source>{windows_path} can&apos;t be reached from inside {distribution}.</source>
        <translation>从 {distribution} 内部无法访问 {windows_path}。</translation>
    </message>
    <message>
        <source>Previewing the data</source>
        <translation>正在预览数据</translation>
    </message>
    <message>
        <source>Checking the plan</source>
        <translation>正在检查训练计划</translation>
    </message>
    <message>
        <source>Importing a GGUF file</source>
        <translation>正在导入 GGUF 文件</translation>
    </message>
    <message>
        <source>Reading the training environment</source>
        <translation>正在读取训练环境</translation>
    </message>
    <message>
        <source>Testing the training environment</source>
        <translation>正在测试训练环境</translation>
    </message>
    <message>
        <source>Testing the kernels</source>
        <translation>正在测试内核</translation>
    </message>
    <message>
        <source>Timing training steps</source>
        <translation>正在测量训练步耗时</translation>
    </message>
    <message>
        <source>Setting up</source>
        <translation>正在安装和检查</translation>
    </message>
    <message>
        <source>Model</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>Data</source>
        <translation>数据</translation>
    </message>
    <message>
        <source>Optimizer</source>
        <translation>优化器</translation>
    </message>
    <message>
        <source>Schedule</source>
        <translation>日程</translation>
    </message>
    <message>
        <source>Evaluation</source>
        <translation>评估</translation>
    </message>
    <message>
        <source>Saving</source>
        <translation>保存</translation>
    </message>
    <message>
        <source>Hardware</source>
        <translation>硬件</translation>
    </message>
    <message>
        <source>Base model</source>
        <translation>基础模型</translation>
    </message>
    <message>
        <source>Folder of a Hugging Face model on this computer, or a hub id such as org/name.</source>
        <translation>这台电脑上的 Hugging Face 模型文件夹，或 org/name 形式的模型站编号。</translation>
    </message>
    <message>
        <source>Revision</source>
        <translation>修订版本</translation>
    </message>
    <message>
        <source>Commit, tag or branch of a hub model. Empty uses the newest.</source>
        <translation>模型站上模型的提交、标签或分支；留空取最新的。</translation>
    </message>
    <message>
        <source>Number format</source>
        <translation>数值格式</translation>
    </message>
    <message>
        <source>float32 doubles the memory of the weights and is slower on a GPU.</source>
        <translation>float32 让权重占用的内存加倍，在 GPU 上也更慢。</translation>
    </message>
    <message>
        <source>float32</source>
        <translation>float32</translation>
    </message>
    <message>
        <source>bfloat16</source>
        <translation>bfloat16</translation>
    </message>
    <message>
        <source>float16</source>
        <translation>float16</translation>
    </message>
    <message>
        <source>Row format</source>
        <translation>行格式</translation>
    </message>
    <message>
        <source>Column mapping</source>
        <translation>列映射</translation>
    </message>
    <message>
        <source>Which column holds what, if the names differ from the usual ones.</source>
        <translation>列名与常用名称不同时，指定文件的哪一列担任哪个角色。</translation>
    </message>
    <message>
        <source>System prompt</source>
        <translation>系统提示词</translation>
    </message>
    <message>
        <source>Added to every chat that has no system message.</source>
        <translation>加在每个没有系统消息的对话之前。</translation>
    </message>
    <message>
        <source>Loss on</source>
        <translation>计入损失</translation>
    </message>
    <message>
        <source>Which tokens count for the loss: the assistant&apos;s answers only, or every token.</source>
        <translation>哪些词元计入损失：只有助手的回答，或全部词元。</translation>
    </message>
    <message>
        <source>Context length</source>
        <translation>上下文长度</translation>
    </message>
    <message>
        <source>Most tokens per example.</source>
        <translation>每个样本最多的词元数。</translation>
    </message>
    <message>
        <source>tokens</source>
        <translation>词元</translation>
    </message>
    <message>
        <source>Higher needs more memory.</source>
        <translation>越大越占内存。</translation>
    </message>
    <message>
        <source>Longer examples</source>
        <translation>过长的样本</translation>
    </message>
    <message>
        <source>Skip bad rows</source>
        <translation>跳过坏行</translation>
    </message>
    <message>
        <source>Map columns…</source>
        <translation>指定各列…</translation>
    </message>
    <message>
        <source>Choose another file…</source>
        <translation>选择其他文件…</translation>
    </message>
    <message>
        <source>Train as a chat</source>
        <translation>作为对话训练</translation>
    </message>
    <message>
        <source>Format of the frozen weights and the calculations. Automatic uses bfloat16 if the GPU supports it.</source>
        <translation>冻结权重和计算的数值格式。自动：显卡支持时使用 bfloat16。</translation>
    </message>
    <message>
        <source>Automatic</source>
        <translation>自动</translation>
    </message>
    <message>
        <source>What a row contains. Automatic looks at the columns of the first rows.</source>
        <translation>每行的内容。自动：根据前几行的列判断。</translation>
    </message>
    <message>
        <source>Chat</source>
        <translation>对话</translation>
    </message>
    <message>
        <source>Chat (ShareGPT)</source>
        <translation>对话（ShareGPT）</translation>
    </message>
    <message>
        <source>Instruction and response (Alpaca)</source>
        <translation>指令与回答（Alpaca）</translation>
    </message>
    <message>
        <source>Prompt and response</source>
        <translation>提示词与回答</translation>
    </message>
    <message>
        <source>Prompt and response as plain text</source>
        <translation>提示词与回答（纯文本）</translation>
    </message>
    <message>
        <source>Plain text</source>
        <translation>纯文本</translation>
    </message>
    <message>
        <source>Answers only</source>
        <translation>仅回答</translation>
    </message>
    <message>
        <source>All</source>
        <translation>全部</translation>
    </message>
    <message>
        <source>Cut</source>
        <translation>截断</translation>
    </message>
    <message>
        <source>Skip</source>
        <translation>跳过</translation>
    </message>
    <message>
        <source>Skips rows that can&apos;t be read or are missing a column, and counts them. Off stops at the first one.</source>
        <translation>略过无法读取或缺列的行并计数；关闭时遇到第一行就停止。</translation>
    </message>
    <message>
        <source>Supervised (SFT)</source>
        <translation>监督微调（SFT）</translation>
    </message>
    <message>
        <source>When DPO and KTO ask the model as it was before the run how likely it finds the answers. Each step does that again. Once does it before the first step and keeps the numbers, also for later runs on the same data, which makes steps shorter and pays off from the second epoch on.</source>
        <translation>DPO 和 KTO 何时询问运行之前的模型各回答的概率。“每步”会在每一步重新计算。“一次”在第一步之前计算并保存结果，之后使用相同数据的运行也可沿用，这样每步更快，从第二个轮次起就划算。</translation>
    </message>
    <message>
        <source>The task&apos;s own scoring</source>
        <translation>任务自带的评分</translation>
    </message>
    <message>
        <source>JSON schema</source>
        <translation>JSON 模式</translation>
    </message>
    <message>
        <source>Reward model</source>
        <translation>奖励模型</translation>
    </message>
    <message>
        <source>Rank</source>
        <translation>秩</translation>
    </message>
    <message>
        <source>Size of the adapter. Too low can&apos;t learn the task, too high can overfit. 8 to 32 suits most data.</source>
        <translation>适配器的大小。过低学不会任务，过高可能过拟合。多数数据用 8 到 32。</translation>
    </message>
    <message>
        <source>Higher learns more and needs more memory.</source>
        <translation>越大学得越多，也越占内存。</translation>
    </message>
    <message>
        <source>Alpha</source>
        <translation>Alpha</translation>
    </message>
    <message>
        <source>How strongly the adapter acts: its output is multiplied by alpha / rank. Once or twice the rank suits most runs.</source>
        <translation>适配器作用的强弱：输出乘以 alpha / 秩。多数运行取秩的一到两倍。</translation>
    </message>
    <message>
        <source>Dropout</source>
        <translation>Dropout</translation>
    </message>
    <message>
        <source>Target modules</source>
        <translation>目标模块</translation>
    </message>
    <message>
        <source>Layers that get an adapter: &quot;all-linear&quot;, or a list of module names such as q_proj, v_proj.</source>
        <translation>要加适配器的层：&quot;all-linear&quot;，或 q_proj, v_proj 这样的模块名列表。</translation>
    </message>
    <message>
        <source>Fewer modules need less memory and learn less.</source>
        <translation>模块越少越省内存，学得也越少。</translation>
    </message>
    <message>
        <source>rsLoRA</source>
        <translation>rsLoRA</translation>
    </message>
    <message>
        <source>Scale by alpha / sqrt(rank), which keeps high ranks effective.</source>
        <translation>按 alpha / √秩 缩放，让高秩仍然有效。</translation>
    </message>
    <message>
        <source>DoRA</source>
        <translation>DoRA</translation>
    </message>
    <message>
        <source>Learns a little more, is slower and needs more memory.</source>
        <translation>学得稍多，但更慢、更占内存。</translation>
    </message>
    <message>
        <source>Bias</source>
        <translation>偏置</translation>
    </message>
    <message>
        <source>none</source>
        <translation>无</translation>
    </message>
    <message>
        <source>Lower the learning rate to a tenth, then start the run again.</source>
        <translation>请把学习率降到十分之一，然后重新开始运行。</translation>
    </message>
    <message>
        <source>Switch packing off, then start the run again.</source>
        <translation>请关闭打包，然后重新开始运行。</translation>
    </message>
    <message>
        <source>The adapter loads in another class than the base model&apos;s own</source>
        <translation>适配器不能用基础模型自己的类加载</translation>
    </message>
    <message>
        <source>The base model holds more than the language model that was trained, and names its weights differently.</source>
        <translation>基础模型除了被训练的语言模型之外还包含其他部分，权重的名称也不同。</translation>
    </message>
    <message>
        <source>Load the base model with AutoModelForCausalLM, as the adapter&apos;s card shows.</source>
        <translation>请按适配器说明卡中的写法，用 AutoModelForCausalLM 加载基础模型。</translation>
    </message>
    <message>
        <source>Rows are cut at the context length</source>
        <translation>部分数据行超出上下文长度，已被截断</translation>
    </message>
    <message>
        <source>Some rows are longer than the context length. Where a cut goes through an answer, its stop token is lost.</source>
        <translation>有些数据行超出了上下文长度。如果截断位置在回答中间，回答的停止标记就会丢失。</translation>
    </message>
    <message>
        <source>Raise the context length, or skip longer rows.</source>
        <translation>请增大上下文长度，或跳过过长的数据行。</translation>
    </message>
    <message>
        <source>Resume the run, or start it again if it has no checkpoint. The log shows what happened before.</source>
        <translation>请继续运行；没有检查点时请重新开始。日志中有结束前的记录。</translation>
    </message>
    <message>
        <source>The system or another program ended the training process. A system does so when memory runs out.</source>
        <translation>系统或其他程序结束了训练进程。内存耗尽时系统会这样做。</translation>
    </message>
    <message>
        <source>Resume the run, or start it again if it has no checkpoint.</source>
        <translation>请继续运行；没有检查点时请重新开始。</translation>
    </message>
    <message>
        <source>Wait, or stop the run and resume it later.</source>
        <translation>请等待，或停止运行，稍后再继续。</translation>
    </message>
    <message>
        <source> Held by: {names}.</source>
        <translation>占用者：{names}。</translation>
    </message>
    <message>
        <source> for CUDA {cuda}</source>
        <translation>（CUDA {cuda}）</translation>
    </message>
    <message>
        <source>, does not work: {problem}</source>
        <translation>，无法工作：{problem}</translation>
    </message>
    <message>
        <source>, inside the Windows Subsystem for Linux</source>
        <translation>，在适用于 Linux 的 Windows 子系统内</translation>
    </message>
    <message>
        <source>, supports CUDA up to {version}</source>
        <translation>，最高支持 CUDA {version}</translation>
    </message>
    <message>
        <source>, {size} free</source>
        <translation>，可用 {size}</translation>
    </message>
    <message>
        <source>, {time} left</source>
        <translation>，剩余 {time}</translation>
    </message>
    <message>
        <source>32-bit build</source>
        <translation>32 位版本</translation>
    </message>
    <message>
        <source>A run is in progress. Stop it first, or wait until it ends.</source>
        <translation>有运行正在进行。请先停止它，或等它结束。</translation>
    </message>
    <message>
        <source>A run needs at least {minimum}, another model about 10 GiB.</source>
        <translation>一次运行至少需要 {minimum}，再放一个模型约需 10 GiB。</translation>
    </message>
    <message>
        <source>About {time}</source>
        <translation>大约 {time}</translation>
    </message>
    <message>
        <source>All program files are intact.</source>
        <translation>所有程序文件完好。</translation>
    </message>
    <message>
        <source>All program files in {folder} are intact.</source>
        <translation>{folder} 中的程序文件全部完好。</translation>
    </message>
    <message>
        <source>All {count:,} files are intact ({how}).</source>
        <translation>全部 {count:,} 个文件完好（{how}）。</translation>
    </message>
    <message>
        <source>All {count} packages have the right version.</source>
        <translation>全部 {count} 个包的版本都正确。</translation>
    </message>
    <message>
        <source>An installation or a repair is running right now.</source>
        <translation>正在安装或修复。</translation>
    </message>
    <message>
        <source>An installation or a repair is running. Wait until it ends.</source>
        <translation>正在安装或修复，请等它结束。</translation>
    </message>
    <message>
        <source>Another installation is running in this folder. Waiting for it to finish.</source>
        <translation>此文件夹中有另一个安装正在进行，正在等待它完成。</translation>
    </message>
    <message>
        <source>Cause: {title} ({code})</source>
        <translation>原因：{title}（{code}）</translation>
    </message>
    <message>
        <source>Check this computer and the installed environments, and name the next step for every fault; changes nothing.

Ends with exit code 3 when something must be repaired.</source>
        <translation>检查这台电脑和已安装的环境，并为每个问题给出下一步；不做任何更改。

需要修复时以退出码 3 结束。</translation>
    </message>
    <message>
        <source>Checking every installed file</source>
        <translation>正在检查每个已安装的文件</translation>
    </message>
    <message>
        <source>Checking {name}</source>
        <translation>检查 {name}</translation>
    </message>
    <message>
        <source>Choose CUDA 12.4 to train on it. The newer GPU can&apos;t be used then.</source>
        <translation>若要用它训练，请选择 CUDA 12.4，但这样新显卡将无法使用。</translation>
    </message>
    <message>
        <source>Choose a folder that you can write to.</source>
        <translation>请选择一个可以写入的文件夹。</translation>
    </message>
    <message>
        <source>Choose an empty folder, or one that does not exist yet.</source>
        <translation>请选择空文件夹，或尚不存在的文件夹。</translation>
    </message>
    <message>
        <source>Choose another distribution in the settings, or install one on the Environment page.</source>
        <translation>请在设置中选择其他发行版，或在“环境”页面安装一个。</translation>
    </message>
    <message>
        <source>Choose the CPU: python3 installers/bootstrap.py --profile cpu</source>
        <translation>请改用 CPU：python3 installers/bootstrap.py --profile cpu</translation>
    </message>
    <message>
        <source>Clear compile caches ({size})</source>
        <translation>清理编译缓存（{size}）</translation>
    </message>
    <message>
        <source>Clear {size}</source>
        <translation>清理 {size}</translation>
    </message>
    <message>
        <source>Close Tunesmith and its runs, allow its folder in the virus scanner, then repair again.</source>
        <translation>请关闭 Tunesmith 及其运行，在杀毒软件中放行它的文件夹，然后重新修复。</translation>
    </message>
    <message>
        <source>Close other programs, then run the same command again. It continues with the test.</source>
        <translation>请关闭其他程序，然后再次运行同一命令，它会从测试继续。</translation>
    </message>
    <message>
        <source>Close these programs, then check again</source>
        <translation>关闭这些程序，然后重新检查</translation>
    </message>
    <message>
        <source>Command: {path}</source>
        <translation>命令：{path}</translation>
    </message>
    <message>
        <source>Compiled kernels of earlier runs take {size} at {folder}. You can remove them: the next run compiles what it needs.</source>
        <translation>以前运行编译的内核占用 {size}，位于 {folder}。可以删除：下次运行会重新编译所需的部分。</translation>
    </message>
    <message>
        <source>Complete</source>
        <translation>已齐全</translation>
    </message>
    <message>
        <source>Connect the drive that holds it, or clear the setting “Folder of wheels”.</source>
        <translation>请连接它所在的硬盘，或清除“wheel 文件夹”设置。</translation>
    </message>
    <message>
        <source>Continue?</source>
        <translation>是否继续？</translation>
    </message>
    <message>
        <source>Convert {name} to WSL 2, because WSL 1 can&apos;t use a GPU. This takes some minutes.</source>
        <translation>把 {name} 转换为 WSL 2，因为 WSL 1 无法使用显卡。需要几分钟。</translation>
    </message>
    <message>
        <source>Copied from {place}.</source>
        <translation>从 {place} 复制。</translation>
    </message>
    <message>
        <source>Data folder: {folder}</source>
        <translation>数据文件夹：{folder}</translation>
    </message>
    <message>
        <source>Disk</source>
        <translation>磁盘</translation>
    </message>
    <message>
        <source>Disk space needed: {required}. The download is smaller.</source>
        <translation>所需磁盘空间：{required}，下载量更小。</translation>
    </message>
    <message>
        <source>Disk: {disk_bytes}</source>
        <translation>磁盘：{disk_bytes}</translation>
    </message>
    <message>
        <source>Do it yourself ({command}), or run the command again and agree.</source>
        <translation>请手动执行（{command}），或再次运行命令并确认。</translation>
    </message>
    <message>
        <source>Download the distribution {name} (about 0.6 GB) and install it for this user.</source>
        <translation>下载发行版 {name}（约 0.6 GB）并为当前用户安装。</translation>
    </message>
    <message>
        <source>Download the installer again and run it. Your data is kept.</source>
        <translation>请重新下载安装程序并运行，你的数据会保留。</translation>
    </message>
    <message>
        <source>Downloading damaged packages again: {packages}</source>
        <translation>正在重新下载损坏的包：{packages}</translation>
    </message>
    <message>
        <source>Driver</source>
        <translation>驱动</translation>
    </message>
    <message>
        <source>Environments and caches go to {folder}, because {reason}.</source>
        <translation>环境和缓存将放在 {folder}，因为{reason}。</translation>
    </message>
    <message>
        <source>Evidence: {evidence}</source>
        <translation>依据：{evidence}</translation>
    </message>
    <message>
        <source>Exit codes: 0 done, 1 a bug of Tunesmith, 2 bad input, 3 environment, 4 the run failed, 5 stopped.</source>
        <translation>退出码：0 完成，1 Tunesmith 自身的错误，2 输入有误，3 环境问题，4 运行失败，5 已停止。</translation>
    </message>
    <message>
        <source>File exists</source>
        <translation>文件已存在</translation>
    </message>
    <message>
        <source>Files: {count}. {source}</source>
        <translation>文件：{count} 个。{source}</translation>
    </message>
    <message>
        <source>First start: installing the libraries of Tunesmith&apos;s window.</source>
        <translation>首次启动：正在安装 Tunesmith 窗口所需的库。</translation>
    </message>
    <message>
        <source>Folder: {folder}</source>
        <translation>文件夹：{folder}</translation>
    </message>
    <message>
        <source>For example: tunesmith settings theme=dark</source>
        <translation>例如：tunesmith settings theme=dark</translation>
    </message>
    <message>
        <source>Free some space on this drive</source>
        <translation>清理此硬盘的空间</translation>
    </message>
    <message>
        <source>Free some space, or set {variable} to a folder on another drive.</source>
        <translation>请清理一些空间，或将 {variable} 设为其他硬盘上的文件夹。</translation>
    </message>
    <message>
        <source>Freed {size}.</source>
        <translation>已释放 {size}。</translation>
    </message>
    <message>
        <source>From reinstalled packages.</source>
        <translation>来自重新安装的包。</translation>
    </message>
    <message>
        <source>Gets the libraries of Tunesmith&apos;s window and opens it; the window sets up training and asks before it
downloads more. Without a display everything is installed and the bundled example trained. The same command continues
after an interruption, and needs no network when nothing is missing.</source>
        <translation>获取 Tunesmith 窗口所需的库并打开窗口；训练环境由窗口来准备，下载更多内容之前会先询问。
没有显示器时会安装全部内容并训练自带的示例。中断之后用同一条命令继续；什么都不缺时不需要网络。</translation>
    </message>
    <message>
        <source>Switch back to the previous training environment, after checking it. The same command switches forward again.

Runs, models and settings are not touched, and a run in progress keeps its environment.</source>
        <translation>检查之后切换回之前使用的训练环境；再执行一次同样的命令会切换回来。

不会改动运行、模型和设置，正在进行的运行继续使用它的环境。</translation>
    </message>
    <message>
        <source>Hidden from runs, because they mislead compilers or libraries: {names}.</source>
        <translation>以下变量会误导编译器或库，运行时已屏蔽：{names}。</translation>
    </message>
    <message>
        <source>The model can&apos;t be read</source>
        <translation>无法读取模型</translation>
    </message>
    <message>
        <source>Choose another checkpoint of the run.</source>
        <translation>请选择该次训练的另一个检查点。</translation>
    </message>
    <message>
        <source>Export in another format, and send us the report.</source>
        <translation>请换一种格式导出，并把报告发给我们。</translation>
    </message>
    <message>
        <source>The model is gated or private, so only accounts with access get it.</source>
        <translation>该模型需要申请或是私有的，只有获得权限的账号才能下载。</translation>
    </message>
    <message>
        <source>Accept the model&apos;s license on its page, then enter an access token of the same account.</source>
        <translation>请先在模型页面上接受许可证，再输入同一账号的访问令牌。</translation>
    </message>
    <message>
        <source>A proxy or security software stops the connection, or its certificate is not trusted.</source>
        <translation>代理或安全软件阻止了连接，或者它的证书不受信任。</translation>
    </message>
    <message>
        <source>There is no model to train</source>
        <translation>没有可以训练的模型</translation>
    </message>
    <message>
        <source>The hub refused the access token</source>
        <translation>模型站拒绝了访问令牌</translation>
    </message>
    <message>
        <source>The token has expired, was deleted, or belongs to another hub.</source>
        <translation>令牌已过期、已被删除，或属于另一个模型站。</translation>
    </message>
    <message>
        <source>Create a new token in the settings of your account on the hub and enter it, or remove the old one.</source>
        <translation>请在模型站的账号设置中创建新令牌并输入，或移除旧令牌。</translation>
    </message>
    <message>
        <source>The labels can&apos;t be learned</source>
        <translation>标签无法学习</translation>
    </message>
    <message>
        <source>The model has no such part to train</source>
        <translation>模型没有要训练的这一部分</translation>
    </message>
    <message>
        <source>A part or module that is to be trained whole is not in the base model.</source>
        <translation>要整体训练的部分或模块不在基座模型里。</translation>
    </message>
    <message>
        <source>Name parts that the model has.</source>
        <translation>写出模型里有的部分。</translation>
    </message>
    <message>
        <source>Sorting texts needs at least two classes, each in the training rows. Predicting numbers needs numbers.</source>
        <translation>分类至少需要两个类别，且每个类别都要出现在训练行中。预测数值则要求标签是数字。</translation>
    </message>
    <message>
        <source>How numbers are shown can&apos;t be read from this workbook, so 5% becomes 0.05.</source>
        <translation>无法从该工作簿读取数字的显示格式，因此 5% 会变成 0.05。</translation>
    </message>
    <message>
        <source>The labels don&apos;t tell good answers from bad ones</source>
        <translation>标签无法区分好的回答和差的回答</translation>
    </message>
    <message>
        <source>Every answer has the same label, or the labels are numbers of a scale.</source>
        <translation>所有回答的标签都相同，或者标签是评分数字。</translation>
    </message>
    <message>
        <source>Label each answer good or bad, and have some of both.</source>
        <translation>请为每个回答标注好或差，并且两种都要有。</translation>
    </message>
    <message>
        <source>Far more answers are good than bad, or the other way round</source>
        <translation>好的回答远多于差的回答，或者相反</translation>
    </message>
    <message>
        <source>Each answer counts with the weight of its side, so the larger side decides what is learned.</source>
        <translation>每个回答按所属一方的权重计入，数量多的一方会主导学习。</translation>
    </message>
    <message>
        <source>Raise the weight of the smaller side.</source>
        <translation>提高数量较少一方的权重。</translation>
    </message>
    <message>
        <source>The experts get no adapter</source>
        <translation>专家没有适配器</translation>
    </message>
    <message>
        <source>Experts that are stored in one weight support only LoRA in all layers, without DoRA, dropout and special initial values. The run trains the other layers.</source>
        <translation>合并存放在一个权重中的专家只支持作用于所有层的 LoRA，不支持 DoRA、dropout 和特殊初始值。本次运行训练其他层。</translation>
    </message>
    <message>
        <source>The run has not saved a model yet</source>
        <translation>该运行还没有保存过模型</translation>
    </message>
    <message>
        <source>The run has no adapter and no complete checkpoint.</source>
        <translation>该运行没有适配器，也没有完整的检查点。</translation>
    </message>
    <message>
        <source>Train until the first checkpoint is saved, then try again.</source>
        <translation>请训练到第一个检查点保存后再试。</translation>
    </message>
    <message>
        <source>AdamW with 8-bit states</source>
        <translation>使用 8 位状态的 AdamW</translation>
    </message>
    <message>
        <source>trained weights in bfloat16</source>
        <translation>bfloat16 的训练权重</translation>
    </message>
    <message>
        <source>LoRA instead of full fine-tuning</source>
        <translation>用 LoRA 代替全量微调</translation>
    </message>
    <message>
        <source>  learning rates of other methods: {rates}</source>
        <translation>  其他方法的学习率：{rates}</translation>
    </message>
    <message>
        <source>&quot;{label}&quot; ({place})</source>
        <translation>“{label}”（{place}）</translation>
    </message>
    <message>
        <source>--- {place}: skipped, {num_lost_tokens} tokens more than the context length</source>
        <translation>--- {place}：已跳过，比上下文长度多 {num_lost_tokens} 个词元</translation>
    </message>
    <message>
        <source>--- {place}: {num_trained_tokens} of {num_tokens} tokens are trained on</source>
        <translation>--- {place}：{num_tokens} 个词元中有 {num_trained_tokens} 个参与训练</translation>
    </message>
    <message>
        <source>--context-length needs --model, whose tokens are counted.</source>
        <translation>--context-length 需要同时指定 --model，因为要用它的分词器计数。</translation>
    </message>
    <message>
        <source>--count must be at least 1, not {count}.</source>
        <translation>--count 至少为 1，不能是 {count}。</translation>
    </message>
    <message>
        <source>--percent must be above 0 and below 100, not {percent:g}.</source>
        <translation>--percent 必须大于 0 且小于 100，不能是 {percent:g}。</translation>
    </message>
    <message>
        <source>A layer is called without hidden states.</source>
        <translation>调用某一层时没有传入隐藏状态。</translation>
    </message>
    <message>
        <source>A run keeps it; a repaired copy replaces it.</source>
        <translation>运行会保留原样；修复后的副本会替换它。</translation>
    </message>
    <message>
        <source>A run keeps these rows; a repaired copy leaves them out.</source>
        <translation>运行会保留这些行；修复后的副本会去掉它们。</translation>
    </message>
    <message>
        <source>Accept the model&apos;s license on its page with this account, then try again. Some owners grant access by hand. A fine-grained token also needs the permission to read gated repositories.</source>
        <translation>请用此账号在模型页面上接受许可证，然后重试。有些作者会人工审批。细粒度令牌还需要读取受限仓库的权限。</translation>
    </message>
    <message>
        <source>Add answers labeled good.</source>
        <translation>添加标注为好的回答。</translation>
    </message>
    <message>
        <source>Add rows that differ from each other.</source>
        <translation>请加入彼此不同的行。</translation>
    </message>
    <message>
        <source>All answers to a prompt got the same reward for {share} of the prompts, so there was nothing to learn. Choose prompts that the model gets right sometimes, or a reward that tells answers apart.</source>
        <translation>{share} 的提示词的所有回答都得到了相同的奖励，因此没有可学的内容。请选择模型有时能答对的提示词，或能区分回答好坏的奖励。</translation>
    </message>
    <message>
        <source>Answers after training</source>
        <translation>训练后的回答</translation>
    </message>
    <message>
        <source>Answers are rewarded differently from here on, so earlier rewards can&apos;t be compared.</source>
        <translation>从这里开始奖励方式不同，不能与之前的奖励比较。</translation>
    </message>
    <message>
        <source>Answers before training</source>
        <translation>训练前的回答</translation>
    </message>
    <message>
        <source>As of {date}. To add models of your own: {path}</source>
        <translation>截至 {date}。要添加自己的模型，请编辑：{path}</translation>
    </message>
    <message>
        <source>Ask whoever runs your network for its certificate and name the file in the variable SSL_CERT_FILE.</source>
        <translation>请向网络管理员索取证书，并在环境变量 SSL_CERT_FILE 中填写该文件。</translation>
    </message>
    <message>
        <source>Attention</source>
        <translation>注意力</translation>
    </message>
    <message>
        <source>Best at step {step}: the mean reward for held-out prompts rose from {before} to {best} there and has fallen to {after} since.</source>
        <translation>第 {step} 步最好：留出提示词的平均奖励在该步从 {before} 升至 {best}，之后降至 {after}。</translation>
    </message>
    <message>
        <source>Caution: good answers became much less likely, too. Their log-probability fell from {before} to {after}, so the model may write something that is neither. A lower learning rate or a higher weight of good answers counteracts that.</source>
        <translation>注意：好的回答的概率也大幅降低了。它们的对数概率从 {before} 降到了 {after}，模型可能会写出两者都不是的内容。降低学习率或提高好的回答的权重可以缓解。</translation>
    </message>
    <message>
        <source>Caution: the better answers became much less likely, too. Their log-probability fell from {before} to {after}, so the model may write something that is neither answer. A lower learning rate or a weight of the SFT loss counteracts that.</source>
        <translation>注意：较好回答的概率也大幅下降，对数概率从 {before} 降到 {after}，模型可能会写出两个回答之外的内容。降低学习率，或给 SFT 损失设置权重，可以抑制这种情况。</translation>
    </message>
    <message>
        <source>Chats whose turns are out of order</source>
        <translation>轮次顺序不对的对话</translation>
    </message>
    <message>
        <source>Choose JSONL, JSON, CSV, TSV, Excel, Parquet, Arrow, PDF, Word, HTML, text or Markdown, or a ZIP, gz or zst file of these.</source>
        <translation>请选择 JSONL、JSON、CSV、TSV、Excel、Parquet、Arrow、PDF、Word、HTML、文本或 Markdown 文件，或包含这些文件的 ZIP、gz、zst 文件。</translation>
    </message>
    <message>
        <source>Choose a version of the model that works without code of its own, or another model.</source>
        <translation>请选择不需要自带代码也能运行的模型版本，或选择其他模型。</translation>
    </message>
    <message>
        <source>Choose another base model, such as a Llama, Qwen, Gemma or Mistral model.</source>
        <translation>请选择其他基础模型，例如 Llama、Qwen、Gemma 或 Mistral 模型。</translation>
    </message>
    <message>
        <source>Choose another name. The file that you opened stays as it is.</source>
        <translation>换一个名字。你打开的文件保持不变。</translation>
    </message>
    <message>
        <source>Choose another share with --percent, or a number of rows with --count.</source>
        <translation>请用 --percent 另选比例，或用 --count 指定行数。</translation>
    </message>
    <message>
        <source>Choose one of its sheets.</source>
        <translation>请选择其中一个工作表。</translation>
    </message>
    <message>
        <source>Classes with a single row, of which nobody can tell whether they are learned: {classes}.</source>
        <translation>只有一行的类别，无法判断是否学会：{classes}。</translation>
    </message>
    <message>
        <source>Comparing the loss before and after</source>
        <translation>正在比较训练前后的损失</translation>
    </message>
    <message>
        <source>Copy or download the file again.</source>
        <translation>请重新复制或下载该文件。</translation>
    </message>
    <message>
        <source>Correct the file, or delete it. The list of Tunesmith is used meanwhile.</source>
        <translation>请更正或删除该文件。在此期间使用 Tunesmith 自带的列表。</translation>
    </message>
    <message>
        <source>Data set</source>
        <translation>数据集</translation>
    </message>
    <message>
        <source>DoRA of the output projection runs in plain PyTorch.</source>
        <translation>输出投影层的 DoRA 以普通 PyTorch 运行。</translation>
    </message>
    <message>
        <source>DoRA with dropout runs in plain PyTorch.</source>
        <translation>DoRA 与 dropout 同时使用时以普通 PyTorch 运行。</translation>
    </message>
    <message>
        <source>Each pair gives a good and a bad answer.</source>
        <translation>每个偏好对提供一个好的回答和一个差的回答。</translation>
    </message>
    <message>
        <source>Each step: {prompts} prompts, {answers} answers to each, of at most {tokens:,} tokens.</source>
        <translation>每一步：{prompts} 条提示词，每条写 {answers} 个回答，每个最多 {tokens:,} 个词元。</translation>
    </message>
    <message>
        <source>Error</source>
        <translation>错误</translation>
    </message>
    <message>
        <source>Every training row has the number {number:g}, so there is nothing to learn.</source>
        <translation>每个训练行的数值都是 {number:g}，没有可学的内容。</translation>
    </message>
    <message>
        <source>Export it to use its scores, or chat with a run that learned to write.</source>
        <translation>导出后可使用它的评分；想对话，请选择学习过写作的训练。</translation>
    </message>
    <message>
        <source>Export the merged model or the adapter instead.</source>
        <translation>请改为导出合并后的模型或适配器。</translation>
    </message>
    <message>
        <source>Export the whole model as GGUF instead.</source>
        <translation>请改为把整个模型导出为 GGUF。</translation>
    </message>
    <message>
        <source>Export the whole model, or a GGUF file.</source>
        <translation>请导出完整模型或 GGUF 文件。</translation>
    </message>
    <message>
        <source>Exported, but not verified</source>
        <translation>已导出，但未验证</translation>
    </message>
    <message>
        <source>Exported, but the answers change</source>
        <translation>已导出，但回答会改变</translation>
    </message>
    <message>
        <source>Fine-tune language models on your own computer. Without a command, the window opens.</source>
        <translation>在自己的电脑上微调语言模型。不带命令时打开窗口。</translation>
    </message>
    <message>
        <source>Format</source>
        <translation>格式</translation>
    </message>
    <message>
        <source>From here on, the model writes more, fewer, longer or shorter answers.</source>
        <translation>从这里开始，模型所写回答的数量或长度会改变。</translation>
    </message>
    <message>
        <source>From here on, training rows get another amount of noise.</source>
        <translation>从这里开始，训练行的噪声大小会改变。</translation>
    </message>
    <message>
        <source>Full fine-tuning makes a whole model, which has no adapter.</source>
        <translation>全量微调得到的是完整模型，没有适配器。</translation>
    </message>
    <message>
        <source>Full fine-tuning of {share} in {format}, by {optimizer}.</source>
        <translation>全量微调：{share}，格式为 {format}，优化器为 {optimizer}。</translation>
    </message>
    <message>
        <source>GPU {number}</source>
        <translation>GPU {number}</translation>
    </message>
    <message>
        <source>General questions after training</source>
        <translation>训练后的常识问题</translation>
    </message>
    <message>
        <source>General questions are simple ones that come with Tunesmith, such as for the capital of France. When fewer answers are right than before, and chance alone hardly gives as much (p below 0.05), training made the model forget.</source>
        <translation>常识问题是 Tunesmith 自带的简单问题，例如法国的首都是哪里。如果答对的比以前少，而且这很难仅凭偶然出现（p 小于 0.05），说明训练使模型遗忘了原有知识。</translation>
    </message>
    <message>
        <source>General questions before training</source>
        <translation>训练前的常识问题</translation>
    </message>
    <message>
        <source>HTML ({word})</source>
        <translation>HTML（{word}）</translation>
    </message>
    <message>
        <source>HTML in the text</source>
        <translation>文本中的 HTML</translation>
    </message>
    <message>
        <source>Held-out numbers are off by {after} on average (RMSE; before training: {before}).</source>
        <translation>留出的数值平均相差 {after}（RMSE；训练前：{before}）。</translation>
    </message>
    <message>
        <source>Hold out a share of the prompts and train again. A rising reward in training alone may mislead.</source>
        <translation>留出一部分提示词后重新训练。仅凭训练中的奖励上升可能会误判。</translation>
    </message>
    <message>
        <source>Hold out more prompts, at least {least}, and train again.</source>
        <translation>多留出一些提示词（至少 {least} 条），然后重新训练。</translation>
    </message>
    <message>
        <source>Hold out more rows</source>
        <translation>留出更多数据行</translation>
    </message>
    <message>
        <source>Hold out more rows, at least {least}, and train again.</source>
        <translation>多留出一些行，至少 {least} 行，然后重新训练。</translation>
    </message>
    <message>
        <source>Hold out more rows, at least {least}, to know how much better it is.</source>
        <translation>请留出更多数据行，至少 {least} 行，才能知道提升了多少。</translation>
    </message>
    <message>
        <source>If it is in another folder, pass that with --prefix.</source>
        <translation>如果它在其他文件夹，请用 --prefix 指定。</translation>
    </message>
    <message>
        <source>Improved a little.</source>
        <translation>略有改善。</translation>
    </message>
    <message>
        <source>Improved a little: the mean reward for held-out prompts rose from {before} to {after}.</source>
        <translation>略有进步：留出提示词的平均奖励从 {before} 升至 {after}。</translation>
    </message>
    <message>
        <source>Improved a lot.</source>
        <translation>明显改善。</translation>
    </message>
    <message>
        <source>Improved a lot: the mean reward for held-out prompts rose from {before} to {after}.</source>
        <translation>进步很大：留出提示词的平均奖励从 {before} 升至 {after}。</translation>
    </message>
    <message>
        <source>Improved, but {num} held-out rows are too few to say by how much.</source>
        <translation>有所提升，但只有 {num} 行留出数据，不足以判断提升了多少。</translation>
    </message>
    <message>
        <source>In LM Studio: {path}</source>
        <translation>在 LM Studio 中：{path}</translation>
    </message>
    <message>
        <source>In Ollama: ollama run {name}</source>
        <translation>在 Ollama 中：ollama run {name}</translation>
    </message>
    <message>
        <source>In {after} of the held-out pairs the better answer scores higher (before: {before}, guessing: 50%).</source>
        <translation>在 {after} 的留出样本对中，较好的回答得分更高（训练前：{before}，随机猜测：50%）。</translation>
    </message>
    <message>
        <source>In {num_open} of them, the end of an answer is lost with its stop token, so the model doesn&apos;t learn to stop there.</source>
        <translation>其中 {num_open} 行丢失了回答的结尾和停止标记，模型学不到在那里停止。</translation>
    </message>
    <message>
        <source>In {num_open} of them, the end of the text is lost with its stop token, so the model doesn&apos;t learn to stop there.</source>
        <translation>其中 {num_open} 篇丢失了文本的结尾和停止标记，模型学不到在那里停止。</translation>
    </message>
    <message>
        <source>Incomplete folders: {count}. They take {size}.</source>
        <translation>未完成的文件夹：{count} 个，占用 {size}。</translation>
    </message>
    <message>
        <source>Input/output error</source>
        <translation>输入/输出错误</translation>
    </message>
    <message>
        <source>Install Python 3.11, 3.12 or 3.13 (not from conda or the Windows Store), then run this command with it.</source>
        <translation>请安装 Python 3.11、3.12 或 3.13（不要用 conda 或 Windows 应用商店的版本），再用它运行此命令。</translation>
    </message>
    <message>
        <source>Install Python 3.12</source>
        <translation>安装 Python 3.12</translation>
    </message>
    <message>
        <source>Install Tunesmith</source>
        <translation>安装 Tunesmith</translation>
    </message>
    <message>
        <source>Install Tunesmith again</source>
        <translation>重新安装 Tunesmith</translation>
    </message>
    <message>
        <source>Install a current NVIDIA driver in Windows (never one inside Linux), then run: wsl --shutdown</source>
        <translation>请在 Windows 中安装新版 NVIDIA 驱动（不要在 Linux 内安装），然后运行：wsl --shutdown</translation>
    </message>
    <message>
        <source>Install inside {name}, as administrator: {packages}.</source>
        <translation>以管理员身份在 {name} 内安装：{packages}。</translation>
    </message>
    <message>
        <source>Install one on the Environment page.</source>
        <translation>请在“环境”页面安装一个。</translation>
    </message>
    <message>
        <source>Install the Windows Subsystem for Linux. Windows asks for an administrator. Then restart the computer.</source>
        <translation>安装适用于 Linux 的 Windows 子系统。Windows 会请求管理员权限，完成后请重启电脑。</translation>
    </message>
    <message>
        <source>Install the build for {title}</source>
        <translation>安装适用于 {title} 的版本</translation>
    </message>
    <message>
        <source>Install the packages of this version</source>
        <translation>安装此版本的包</translation>
    </message>
    <message>
        <source>Install the subsystem on the Environment page, then restart.</source>
        <translation>请在“环境”页面安装子系统，然后重启。</translation>
    </message>
    <message>
        <source>Install these with your package manager: {names}</source>
        <translation>请用系统的包管理器安装：{names}</translation>
    </message>
    <message>
        <source>Installed without a distribution. Only needed as a fallback.</source>
        <translation>已安装，但没有发行版。仅作备用。</translation>
    </message>
    <message>
        <source>Interrupted.</source>
        <translation>已中断。</translation>
    </message>
    <message>
        <source>Interrupted. Run the same command to continue. Runs that have started continue.</source>
        <translation>已中断。再次运行同一命令即可继续。已经开始的运行不受影响。</translation>
    </message>
    <message>
        <source>Is a directory</source>
        <translation>这是一个文件夹</translation>
    </message>
    <message>
        <source>It has learned what answers look like, not what they say. It can&apos;t know facts that are in none of the training rows: check that yours contain them, add more rows, or train a larger model.</source>
        <translation>模型学会了回答的样子，没有学会回答的内容。训练数据里没有的知识，它无从知道：请检查数据是否包含这些知识、增加数据，或训练更大的模型。</translation>
    </message>
    <message>
        <source>It is in the variable {name}.</source>
        <translation>位于变量 {name} 中。</translation>
    </message>
    <message>
        <source>It is on this computer: {folder}</source>
        <translation>已在这台电脑上：{folder}</translation>
    </message>
    <message>
        <source>It is the one of huggingface_hub&apos;s log-in, in {path}.</source>
        <translation>使用 huggingface_hub 登录时保存的令牌，位于 {path}。</translation>
    </message>
    <message>
        <source>It was exported before and has not changed since.</source>
        <translation>之前已导出过，此后没有改动。</translation>
    </message>
    <message>
        <source>KTO compares the answers of a step with each other. Use at least 2 examples per step</source>
        <translation>KTO 会比较同一步中的回答。每步至少要有 2 个样本</translation>
    </message>
    <message>
        <source>Kept: {names}.</source>
        <translation>已保留：{names}。</translation>
    </message>
    <message>
        <source>Kept: {path} ({what})</source>
        <translation>保留：{path}（{what}）</translation>
    </message>
    <message>
        <source>Let Windows manage the page file</source>
        <translation>让 Windows 管理页面文件</translation>
    </message>
    <message>
        <source>License</source>
        <translation>许可证</translation>
    </message>
    <message>
        <source>Linux distribution to use (default: the default one)</source>
        <translation>要使用的 Linux 发行版（默认：系统默认的发行版）</translation>
    </message>
    <message>
        <source>List the environments on this computer with their packages, or show how two of them differ.

Without words they are listed; `diff A B` compares two, by name, by its beginning, or &quot;previous&quot; and &quot;current&quot;.</source>
        <translation>列出这台电脑上的环境及其软件包，或显示其中两个的差别。

不带参数时列出全部；`diff A B` 比较两个环境，可用名称、名称开头，或 “previous” 和 “current”。</translation>
    </message>
    <message>
        <source>Longer texts can be split instead (Longer examples: Split).</source>
        <translation>过长的文本也可以改为拆分（“过长的样本”选“拆分”）。</translation>
    </message>
    <message>
        <source>Look at the labels: good and bad may be swapped. If they are right, train for more steps or at a higher learning rate.</source>
        <translation>检查标签：好和差可能弄反了。如果没有问题，请训练更多步，或提高学习率。</translation>
    </message>
    <message>
        <source>Look at the pairs: better and worse may be swapped. If they are right, train for more steps or at a higher learning rate.</source>
        <translation>请检查偏好对：好坏两个回答可能弄反了。如果没有问题，请增加训练步数或提高学习率。</translation>
    </message>
    <message>
        <source>Look at the rows</source>
        <translation>查看数据行</translation>
    </message>
    <message>
        <source>Looking for NVIDIA GPUs took too long.</source>
        <translation>查找 NVIDIA 显卡超时。</translation>
    </message>
    <message>
        <source>Looking up security software took too long.</source>
        <translation>查找安全软件超时。</translation>
    </message>
    <message>
        <source>Looking up the runtime took too long.</source>
        <translation>查找运行库超时。</translation>
    </message>
    <message>
        <source>Loss or reward</source>
        <translation>损失或奖励</translation>
    </message>
    <message>
        <source>Lower the learning rate, and look at the answers: the reward may favor something else.</source>
        <translation>降低学习率，并查看回答：奖励可能偏向了别的东西。</translation>
    </message>
    <message>
        <source>Lower the learning rate, and look at the labels: good and bad may be swapped.</source>
        <translation>降低学习率，并检查标签：好和差可能弄反了。</translation>
    </message>
    <message>
        <source>Lower the learning rate, and look at the pairs: better and worse may be swapped.</source>
        <translation>请降低学习率，并检查偏好对：好坏两个回答可能弄反了。</translation>
    </message>
    <message>
        <source>Macro F1, in which every class counts the same, is {f1}. The model&apos;s confidence is off by {gap} on average (calibration error).</source>
        <translation>宏平均 F1（每个类别权重相同）为 {f1}。模型的置信度平均偏差 {gap}（校准误差）。</translation>
    </message>
    <message>
        <source>Many rows have the same answer</source>
        <translation>许多行的回答相同</translation>
    </message>
    <message>
        <source>Memory</source>
        <translation>内存</translation>
    </message>
    <message>
        <source>Memory was nearly full. Close other programs, then resume from step {step}.</source>
        <translation>内存几乎已满。请关闭其他程序，然后从第 {step} 步继续。</translation>
    </message>
    <message>
        <source>Memory was nearly full. Close other programs, then start the run again: nothing was saved yet.</source>
        <translation>内存几乎已满。请关闭其他程序，然后重新开始运行：当时还没有保存检查点。</translation>
    </message>
    <message>
        <source>Messages with an unknown role</source>
        <translation>角色未知的消息</translation>
    </message>
    <message>
        <source>Minimum, row by row and with activation checkpointing: {least_bytes}</source>
        <translation>最低需求（逐行处理并启用激活检查点）：{least_bytes}</translation>
    </message>
    <message>
        <source>Missing: {names}.</source>
        <translation>缺少：{names}。</translation>
    </message>
    <message>
        <source>More steps or more prompts may improve it further.</source>
        <translation>更多步数或更多提示词可能会进一步提升效果。</translation>
    </message>
    <message>
        <source>More than one language</source>
        <translation>包含多种语言</translation>
    </message>
    <message>
        <source>NVIDIA GPUs did not answer: CPU</source>
        <translation>NVIDIA 显卡没有响应：CPU</translation>
    </message>
    <message>
        <source>Name a file of rows to measure on, or hold out a share of them and train again.</source>
        <translation>请指定用于评估的数据文件，或设置留出比例后重新训练。</translation>
    </message>
    <message>
        <source>Name the cause of a failure from any error output: tunesmith explain LOGFILE, or - for what comes in.</source>
        <translation>根据任意错误输出找出失败原因：tunesmith explain LOGFILE，用 - 表示读取标准输入。</translation>
    </message>
    <message>
        <source>Name the encoding of the file: --encoding {encoding}</source>
        <translation>请指定文件的编码：--encoding {encoding}</translation>
    </message>
    <message>
        <source>Nats tell how far apart the probabilities of two models are, and 0 is equal.</source>
        <translation>纳特（nat）表示两个模型给出的概率相差多少，0 表示完全相同。</translation>
    </message>
    <message>
        <source>Needs at most {needed}, {free} are free</source>
        <translation>最多需要 {needed}，可用 {free}</translation>
    </message>
    <message>
        <source>Next: {step}</source>
        <translation>下一步：{step}</translation>
    </message>
    <message>
        <source>No Linux distribution is installed.</source>
        <translation>没有安装 Linux 发行版。</translation>
    </message>
    <message>
        <source>No NVIDIA GPU</source>
        <translation>没有 NVIDIA 显卡</translation>
    </message>
    <message>
        <source>No NVIDIA GPU was found for this build.</source>
        <translation>没有找到可用于此版本的 NVIDIA 显卡。</translation>
    </message>
    <message>
        <source>No NVIDIA GPU.</source>
        <translation>没有 NVIDIA 显卡。</translation>
    </message>
    <message>
        <source>No NVIDIA GPU{others}: CPU</source>
        <translation>没有 NVIDIA 显卡{others}：CPU</translation>
    </message>
    <message>
        <source>No Triton kernels for {names}. Training needs more memory and time there.</source>
        <translation>{names} 不支持 Triton 内核，训练会占用更多显存和时间。</translation>
    </message>
    <message>
        <source>No adapter fits here: {names}. Only linear layers, convolutions and embeddings can have one. The linear layers of the model are {known}.</source>
        <translation>这里无法放置适配器：{names}。只有线性层、卷积和嵌入可以有适配器。该模型的线性层有 {known}。</translation>
    </message>
    <message>
        <source>No environment is installed.</source>
        <translation>没有安装任何环境。</translation>
    </message>
    <message>
        <source>No error found in this log. If something failed, look for the log of the part that failed.</source>
        <translation>此日志中没有发现错误。如果有操作失败，请查看相应部分的日志。</translation>
    </message>
    <message>
        <source>No improvement that depends on the question: the held-out loss fell from {before} to {after}, but an answer is as likely under another row&apos;s question.</source>
        <translation>没有与问题相关的提升：留出数据的损失从 {before} 降到 {after}，但换成别的行的问题，同一答案的概率并无差别。</translation>
    </message>
    <message>
        <source>No improvement that is certain: the held-out loss fell from {before} to {after}, which may be chance.</source>
        <translation>没有可以确定的提升：留出数据的损失从 {before} 降到 {after}，可能只是偶然。</translation>
    </message>
    <message>
        <source>No improvement that is certain: the mean reward for held-out prompts went from {before} to {after}, which may be chance.</source>
        <translation>没有确定的进步：留出提示词的平均奖励从 {before} 变为 {after}，可能只是偶然。</translation>
    </message>
    <message>
        <source>No improvement: the mean reward for held-out prompts was {before} and is {after}.</source>
        <translation>没有进步：留出提示词的平均奖励原为 {before}，现为 {after}。</translation>
    </message>
    <message>
        <source>No model of the list matches.</source>
        <translation>列表中没有符合条件的模型。</translation>
    </message>
    <message>
        <source>No problems found ({num_checks} checks in {time}).</source>
        <translation>没有发现问题（{num_checks} 项检查，用时 {time}）。</translation>
    </message>
    <message>
        <source>No problems found.</source>
        <translation>没有发现问题。</translation>
    </message>
    <message>
        <source>No rows are left to mix with these weights and caps.</source>
        <translation>按这些权重和上限，没有可混合的行。</translation>
    </message>
    <message>
        <source>No space left on device</source>
        <translation>磁盘空间已满</translation>
    </message>
    <message>
        <source>No such file or directory</source>
        <translation>文件或文件夹不存在</translation>
    </message>
    <message>
        <source>Nobody knows whether the model improved: no held-out prompts were answered before and after.</source>
        <translation>无法判断模型是否进步：训练前后没有回答过留出的提示词。</translation>
    </message>
    <message>
        <source>Nobody knows whether the model improved: {num_leaked} of {num_rows} held-out rows are training rows too, word for word or nearly.</source>
        <translation>无法判断模型是否有提升：{num_rows} 行留出数据中有 {num_leaked} 行与训练数据相同或几乎相同。</translation>
    </message>
    <message>
        <source>None found that could block compiled kernels.</source>
        <translation>没有发现可能拦截已编译内核的软件。</translation>
    </message>
    <message>
        <source>None of the chosen modules is a linear layer. Only LoRA works for others.</source>
        <translation>所选模块都不是线性层。其他类型的模块只能使用 LoRA。</translation>
    </message>
    <message>
        <source>None that misleads compilers or libraries.</source>
        <translation>没有会误导编译器或库的变量。</translation>
    </message>
    <message>
        <source>None.</source>
        <translation>没有。</translation>
    </message>
    <message>
        <source>None. Only held-out rows are asked, and this run has asked none.</source>
        <translation>无。只会提问留出的数据行，而这次训练没有提问。</translation>
    </message>
    <message>
        <source>Not a directory</source>
        <translation>这不是文件夹</translation>
    </message>
    <message>
        <source>Not installed on this computer.</source>
        <translation>此电脑上尚未安装。</translation>
    </message>
    <message>
        <source>Not installed. Only needed as a fallback.</source>
        <translation>未安装。仅作备用。</translation>
    </message>
    <message>
        <source>Not needed for training on the processor.</source>
        <translation>用处理器训练时不需要。</translation>
    </message>
    <message>
        <source>Not removed: {count}.</source>
        <translation>未能删除：{count} 项。</translation>
    </message>
    <message>
        <source>Not repaired: {titles}.</source>
        <translation>未修复：{titles}。</translation>
    </message>
    <message>
        <source>Note</source>
        <translation>提示</translation>
    </message>
    <message>
        <source>Nothing else needs repair.</source>
        <translation>没有其他需要修复的问题。</translation>
    </message>
    <message>
        <source>Nothing is installed.</source>
        <translation>没有安装任何内容。</translation>
    </message>
    <message>
        <source>Nothing was removed. With --yes it is removed without asking.</source>
        <translation>没有删除任何内容。加上 --yes 可直接删除而不询问。</translation>
    </message>
    <message>
        <source>Of unknown origin, moved to {folder}.</source>
        <translation>来源不明，已移至 {folder}。</translation>
    </message>
    <message>
        <source>On Windows, Tunesmith-Setup.exe installs and removes the program.</source>
        <translation>在 Windows 上，请用 Tunesmith-Setup.exe 安装和卸载程序。</translation>
    </message>
    <message>
        <source>On held-out pairs the model now prefers the better answer in {after} (before: {before}).</source>
        <translation>在留出的偏好对上，模型现在有 {after} 偏好较好的回答（训练前：{before}）。</translation>
    </message>
    <message>
        <source>Only LoRA can adapt them: choose LoRA to train them too.</source>
        <translation>只有 LoRA 能用于专家：若也要训练专家，请选择 LoRA。</translation>
    </message>
    <message>
        <source>Only the first {number:,} rows were searched for duplicates.</source>
        <translation>只在前 {number:,} 行中查找了重复行。</translation>
    </message>
    <message>
        <source>Only the first {number:,} rows were searched for near duplicates.</source>
        <translation>只在前 {number:,} 行中查找了近似重复行。</translation>
    </message>
    <message>
        <source>Open it in a PDF program and save or print it as a PDF without a password.</source>
        <translation>请用 PDF 程序打开它，并另存或打印为不带密码的 PDF。</translation>
    </message>
    <message>
        <source>Open the file again, then repeat your changes.</source>
        <translation>重新打开文件，再做一次修改。</translation>
    </message>
    <message>
        <source>Open the window, which sets up training. Without a display, install everything and train the bundled example.</source>
        <translation>打开窗口，由窗口准备训练环境；没有显示器时安装全部内容并训练自带的示例。</translation>
    </message>
    <message>
        <source>Open the window. The first time, get the window&apos;s libraries before, in a terminal that shows the progress.</source>
        <translation>打开窗口；第一次会先在显示进度的终端里获取窗口所需的库。</translation>
    </message>
    <message>
        <source>Other GPU</source>
        <translation>其他显卡</translation>
    </message>
    <message>
        <source>Over {rows} held-out prompts the reward rose by {mean} (95% interval: {low} to {high}).</source>
        <translation>在 {rows} 条留出提示词上，奖励上升了 {mean}（95% 区间：{low} 到 {high}）。</translation>
    </message>
    <message>
        <source>Overfitting: after {epochs} times over {num_rows} rows the training loss is {training}, but the held-out loss is {after}.</source>
        <translation>过拟合：{num_rows} 行数据训练 {epochs} 遍后，训练损失为 {training}，但留出数据的损失为 {after}。</translation>
    </message>
    <message>
        <source>Overfitting: the training loss is {training}, so the rows are known by heart, but the held-out loss is {after}.</source>
        <translation>过拟合：训练损失为 {training}，说明模型已背下这些数据行，但留出数据的损失为 {after}。</translation>
    </message>
    <message>
        <source>PEFT can&apos;t restore this adapter in {name}, the class that the base model&apos;s config.json names. Load the base model with AutoModelForCausalLM, as the adapter&apos;s card shows.</source>
        <translation>PEFT 无法在 {name}（基础模型的 config.json 指定的类）中恢复此适配器。请按适配器说明卡中的写法，用 AutoModelForCausalLM 加载基础模型。</translation>
    </message>
    <message>
        <source>Page file</source>
        <translation>页面文件</translation>
    </message>
    <message>
        <source>Permission denied</source>
        <translation>没有权限</translation>
    </message>
    <message>
        <source>Preference pairs that another row has the other way round</source>
        <translation>与另一行好坏相反的偏好对</translation>
    </message>
    <message>
        <source>Preference pairs without a worse answer</source>
        <translation>缺少较差回答的偏好对</translation>
    </message>
    <message>
        <source>Press Enter to close this window.</source>
        <translation>按回车键关闭此窗口。</translation>
    </message>
    <message>
        <source>Probable passwords and keys</source>
        <translation>疑似密码和密钥</translation>
    </message>
    <message>
        <source>Probable personal data</source>
        <translation>疑似个人信息</translation>
    </message>
    <message>
        <source>Processor</source>
        <translation>处理器</translation>
    </message>
    <message>
        <source>Profile</source>
        <translation>配置</translation>
    </message>
    <message>
        <source>Prompt and response as plain text: {prompt} and {completion} are joined.</source>
        <translation>提示词与回答（纯文本）：{prompt} 与 {completion} 直接拼接。</translation>
    </message>
    <message>
        <source>Prompt and response: the column {prompt} asks, and {completion} answers.</source>
        <translation>提示词与回答：列 {prompt} 为提问，{completion} 为回答。</translation>
    </message>
    <message>
        <source>Prompts without answers: the column {prompt} asks.</source>
        <translation>没有回答的提示词：{prompt} 列提问。</translation>
    </message>
    <message>
        <source>Prompts without room for an answer that were left out: {number:,}</source>
        <translation>因没有作答空间而舍弃的提示词：{number:,}</translation>
    </message>
    <message>
        <source>PyTorch can&apos;t be imported in this version</source>
        <translation>此版本无法导入 PyTorch</translation>
    </message>
    <message>
        <source>PyTorch can&apos;t be loaded without the Visual C++ runtime: {found}.</source>
        <translation>PyTorch 需要 Visual C++ 运行库才能加载：{found}。</translation>
    </message>
    <message>
        <source>PyTorch is missing or can&apos;t be read.</source>
        <translation>PyTorch 缺失或无法读取。</translation>
    </message>
    <message>
        <source>Python does not start</source>
        <translation>Python 无法启动</translation>
    </message>
    <message>
        <source>Python starts ({name}).</source>
        <translation>Python 可以启动（{name}）。</translation>
    </message>
    <message>
        <source>Python {number} ({python}) is not supported, and no other Python on this computer is.</source>
        <translation>不支持 Python {number}（{python}），此电脑上也没有其他受支持的 Python。</translation>
    </message>
    <message>
        <source>Python: {executable}</source>
        <translation>Python：{executable}</translation>
    </message>
    <message>
        <source>Questions written: {number:,}. Passages: {passages:,}. They are in {path}</source>
        <translation>已生成 {number:,} 个问题，来自 {passages:,} 段文字。文件：{path}</translation>
    </message>
    <message>
        <source>RMSE</source>
        <translation>RMSE</translation>
    </message>
    <message>
        <source>Reach a number by calculating with given ones</source>
        <translation>用给定的数算出目标数</translation>
    </message>
    <message>
        <source>Read some answers before you rely on it. A reward can be earned without doing the task.</source>
        <translation>使用之前先读几个回答。不完成任务也可能拿到奖励。</translation>
    </message>
    <message>
        <source>Read-only file system</source>
        <translation>文件系统是只读的</translation>
    </message>
    <message>
        <source>Reading the memory took too long.</source>
        <translation>读取内存信息超时。</translation>
    </message>
    <message>
        <source>Reading the setting took too long.</source>
        <translation>读取此设置超时。</translation>
    </message>
    <message>
        <source>Ready as a fallback.</source>
        <translation>已就绪，可作备用。</translation>
    </message>
    <message>
        <source>Recognize the text with a program for scans (OCR), and choose the file that it saves.</source>
        <translation>请用文字识别（OCR）程序识别文本，再选择它保存的文件。</translation>
    </message>
    <message>
        <source>Reinstall the packages</source>
        <translation>重新安装这些包</translation>
    </message>
    <message>
        <source>Reinstalling {packages}</source>
        <translation>正在重新安装 {packages}</translation>
    </message>
    <message>
        <source>Remove</source>
        <translation>删除</translation>
    </message>
    <message>
        <source>Remove broken environments ({size})</source>
        <translation>删除损坏的环境（{size}）</translation>
    </message>
    <message>
        <source>Remove repeated rows from the data and add different ones, then train again.</source>
        <translation>请删除重复的数据行，补充不同的数据，然后重新训练。</translation>
    </message>
    <message>
        <source>Remove repeated rows, or choose evaluation data that the model is not trained on.</source>
        <translation>请删除重复的数据行，或选择未用于训练的评估数据。</translation>
    </message>
    <message>
        <source>Remove {size}</source>
        <translation>删除 {size}</translation>
    </message>
    <message>
        <source>Removed the compile caches ({freed})</source>
        <translation>已清理编译缓存（{freed}）</translation>
    </message>
    <message>
        <source>Removed {name}</source>
        <translation>已删除 {name}</translation>
    </message>
    <message>
        <source>Removed {name}, which nothing uses anymore</source>
        <translation>已删除不再使用的 {name}</translation>
    </message>
    <message>
        <source>Removed, Python compiles them again.</source>
        <translation>已删除，Python 会重新编译。</translation>
    </message>
    <message>
        <source>Renewed the list of the environment&apos;s files</source>
        <translation>已更新环境的文件清单</translation>
    </message>
    <message>
        <source>Repair {count:,} files</source>
        <translation>修复 {count:,} 个文件</translation>
    </message>
    <message>
        <source>Restart, then run the same command again. It continues from here.</source>
        <translation>请重启，然后再次运行同一命令，它会从这里继续。</translation>
    </message>
    <message>
        <source>Restore the named files, then try again.</source>
        <translation>请恢复上述文件，然后重试。</translation>
    </message>
    <message>
        <source>Restored from the list of the environment.</source>
        <translation>从环境的文件清单恢复。</translation>
    </message>
    <message>
        <source>Resume from step {step}.</source>
        <translation>请从第 {step} 步继续。</translation>
    </message>
    <message>
        <source>Resume the run with 8-bit states or smaller micro-batches.</source>
        <translation>请改用 8 位状态或更小的微批次，再恢复这次运行。</translation>
    </message>
    <message>
        <source>Resume the run, which saves its result again.</source>
        <translation>恢复这次运行，它会重新保存结果。</translation>
    </message>
    <message>
        <source>Reward by step</source>
        <translation>各步的奖励</translation>
    </message>
    <message>
        <source>Rewards: {rewards}</source>
        <translation>奖励：{rewards}</translation>
    </message>
    <message>
        <source>Rows cut at the context length of {limit} tokens: {num_cut} of {num_rows}.</source>
        <translation>有 {num_cut} 行（共 {num_rows} 行）超出 {limit} 个词元的上下文长度，已被截断。</translation>
    </message>
    <message>
        <source>Rows in the files: {num:,}. Held out: {held_out:,}. Left out by &quot;Most rows&quot;: {num_left:,}.</source>
        <translation>文件共有 {num:,} 行，其中留出 {held_out:,} 行，因“最多行数”未使用 {num_left:,} 行。</translation>
    </message>
    <message>
        <source>Rows longer than the context length</source>
        <translation>超过上下文长度的行</translation>
    </message>
    <message>
        <source>Rows that are laid out differently</source>
        <translation>结构不一致的行</translation>
    </message>
    <message>
        <source>Rows that are nearly the same as another</source>
        <translation>与其他行几乎相同的行</translation>
    </message>
    <message>
        <source>Rows that can&apos;t be read</source>
        <translation>无法读取的行</translation>
    </message>
    <message>
        <source>Rows that occur more than once</source>
        <translation>重复出现的行</translation>
    </message>
    <message>
        <source>Rows without a column that is needed</source>
        <translation>缺少必需列的行</translation>
    </message>
    <message>
        <source>Rows without a prompt of their own that were left out: {number:,}</source>
        <translation>因没有自己的提示词而舍弃的行：{number:,}</translation>
    </message>
    <message>
        <source>Rows without an answer</source>
        <translation>没有回答的行</translation>
    </message>
    <message>
        <source>Run every check and test in a test environment of its own. Further arguments go to pytest and select tests.</source>
        <translation>在独立的测试环境中运行全部检查和测试；其余参数交给 pytest，用来选择测试。</translation>
    </message>
    <message>
        <source>Run it in a terminal and read what it says: {command}</source>
        <translation>请在终端中运行它并查看输出：{command}</translation>
    </message>
    <message>
        <source>Run the same command again: it brings back what is missing.</source>
        <translation>请再次运行同一命令，它会补全缺少的内容。</translation>
    </message>
    <message>
        <source>Run tunesmith repair when the current one does not work.</source>
        <translation>如果当前环境无法使用，请运行 tunesmith repair。</translation>
    </message>
    <message>
        <source>Run: tunesmith rewards</source>
        <translation>请运行：tunesmith rewards</translation>
    </message>
    <message>
        <source>Run: tunesmith rewards --yes</source>
        <translation>请运行：tunesmith rewards --yes</translation>
    </message>
    <message>
        <source>Run: wsl --set-version NAME 2</source>
        <translation>请运行：wsl --set-version 名称 2</translation>
    </message>
    <message>
        <source>Run: wsl --update</source>
        <translation>请运行：wsl --update</translation>
    </message>
    <message>
        <source>Run: wsl --update, then restart.</source>
        <translation>请运行：wsl --update，然后重启。</translation>
    </message>
    <message>
        <source>Run: {command}</source>
        <translation>请运行：{command}</translation>
    </message>
    <message>
        <source>Run: {python} -m pip install uv (on Debian and Ubuntu first: sudo apt-get install python3-pip python3-venv). Then run this command again.</source>
        <translation>请运行：{python} -m pip install uv（在 Debian 和 Ubuntu 上先运行：sudo apt-get install python3-pip python3-venv），然后再次运行此命令。</translation>
    </message>
    <message>
        <source>Running {command}</source>
        <translation>正在运行 {command}</translation>
    </message>
    <message>
        <source>Runs can train inside {name}. To do so, choose wsl as system under Hardware.</source>
        <translation>可以在 {name} 内训练。请在“硬件”中把系统设为 wsl。</translation>
    </message>
    <message>
        <source>Runs now use {name}. Run the same command to switch back.</source>
        <translation>运行现在使用 {name}。再次运行同一命令可切换回去。</translation>
    </message>
    <message>
        <source>Samples</source>
        <translation>样例</translation>
    </message>
    <message>
        <source>Save the example under a new name. The file stays as it is.</source>
        <translation>请将示例另存为新名称。原文件保持不变。</translation>
    </message>
    <message>
        <source>Saves {saved_bytes}: {changes}</source>
        <translation>可节省 {saved_bytes}：{changes}</translation>
    </message>
    <message>
        <source>Say which column says whether an answer is good or bad.</source>
        <translation>请指定哪一列说明回答是好是坏。</translation>
    </message>
    <message>
        <source>Score answers that are not among the rows before you rely on it.</source>
        <translation>在依赖它之前，先给一些不在数据中的回答打分看看。</translation>
    </message>
    <message>
        <source>Security</source>
        <translation>安全软件</translation>
    </message>
    <message>
        <source>Set it under Settings &gt; Network, as in http://user:password@proxy.example:8080.</source>
        <translation>请在“设置 &gt; 网络”中填写，例如 http://user:password@proxy.example:8080。</translation>
    </message>
    <message>
        <source>Set the share of own answers to 0 (teacher.own_answers), or use prompts with answers.</source>
        <translation>请把自写回答的比例设为 0（teacher.own_answers），或使用带回答的提示词。</translation>
    </message>
    <message>
        <source>Set up training inside the Windows Subsystem for Linux, for computers where native Windows can&apos;t.</source>
        <translation>在适用于 Linux 的 Windows 子系统（WSL）里准备训练，用于无法直接在 Windows 上训练的电脑。</translation>
    </message>
    <message>
        <source>Set {variable} to a folder that you can write to.</source>
        <translation>请将 {variable} 设为可以写入的文件夹。</translation>
    </message>
    <message>
        <source>Set {work_variable} to a short folder that you can write to, such as {anchor}ts.</source>
        <translation>请将 {work_variable} 设为可以写入的短路径文件夹，例如 {anchor}ts。</translation>
    </message>
    <message>
        <source>Shell</source>
        <translation>终端</translation>
    </message>
    <message>
        <source>Show what is known about this computer, and which build of PyTorch it gets.</source>
        <translation>显示这台电脑的信息，以及会使用哪个 PyTorch 版本。</translation>
    </message>
    <message>
        <source>Simplify a fraction</source>
        <translation>约分</translation>
    </message>
    <message>
        <source>Solution steps with labels: the column {prompt} holds the problem, {steps} the steps of a solution, and {step_labels} says which are right.</source>
        <translation>带标签的解题步骤：列 {prompt} 是题目，{steps} 是解题步骤，{step_labels} 说明哪些步骤正确。</translation>
    </message>
    <message>
        <source>Solve a 4 by 4 sudoku</source>
        <translation>解四宫数独</translation>
    </message>
    <message>
        <source>Solve an equation for its unknown</source>
        <translation>解方程</translation>
    </message>
    <message>
        <source>Sort numbers</source>
        <translation>数字排序</translation>
    </message>
    <message>
        <source>Sort words</source>
        <translation>单词排序</translation>
    </message>
    <message>
        <source>Spell a word backward</source>
        <translation>倒着拼写单词</translation>
    </message>
    <message>
        <source>Start</source>
        <translation>启动</translation>
    </message>
    <message>
        <source>Start it again. If it ends once more, send us the report.</source>
        <translation>请重新开始。如果再次中断，请把报告发给我们。</translation>
    </message>
    <message>
        <source>Start the run again: no checkpoint was saved yet.</source>
        <translation>请重新开始运行：当时还没有保存检查点。</translation>
    </message>
    <message>
        <source>Stopping after this step and saving. Press Ctrl-C again to let the run continue in the background.</source>
        <translation>将在这一步之后停止并保存。再按一次 Ctrl-C 可让运行在后台继续。</translation>
    </message>
    <message>
        <source>Swap</source>
        <translation>交换空间</translation>
    </message>
    <message>
        <source>Tell how two people are related</source>
        <translation>判断两人的亲属关系</translation>
    </message>
    <message>
        <source>Tell whether a conclusion follows</source>
        <translation>判断结论是否成立</translation>
    </message>
    <message>
        <source>Temporary files, removed after the installation</source>
        <translation>临时文件，安装后删除</translation>
    </message>
    <message>
        <source>Test training now</source>
        <translation>立即测试训练</translation>
    </message>
    <message>
        <source>Testing the environment ended with exit code {exit_code}, at this step: {step}.</source>
        <translation>环境测试以退出码 {exit_code} 结束，停在这一步：{step}。</translation>
    </message>
    <message>
        <source>Testing the environment took too long, at this step: {step}.</source>
        <translation>环境测试超时，停在这一步：{step}。</translation>
    </message>
    <message>
        <source>Text with label: the column {text} is read, and {label} says its class or its number.</source>
        <translation>带标签的文本：读取列 {text}，列 {label} 给出类别或数值。</translation>
    </message>
    <message>
        <source>Texts cut at the context length of {limit} tokens: {num_cut} of {num_rows}.</source>
        <translation>有 {num_cut} 篇文本（共 {num_rows} 篇）超出 {limit} 个词元的上下文长度，已被截断。</translation>
    </message>
    <message>
        <source>The GPU did not answer in time.</source>
        <translation>显卡没有及时响应。</translation>
    </message>
    <message>
        <source>The GPUs have changed since the training test.</source>
        <translation>训练测试之后显卡有变化。</translation>
    </message>
    <message>
        <source>The Windows feature for Linux is turned off.</source>
        <translation>Windows 的 Linux 子系统功能已关闭。</translation>
    </message>
    <message>
        <source>The account of your access token has no access to {id}.</source>
        <translation>您的访问令牌所属账号无权访问 {id}。</translation>
    </message>
    <message>
        <source>The adapter has started already, so this changes nothing.</source>
        <translation>适配器已经开始训练，因此这不会改变任何结果。</translation>
    </message>
    <message>
        <source>The adapter to start from was trained on {named}, this run&apos;s base model is {own}. Continue only if these are the same weights.</source>
        <translation>起始适配器是在 {named} 上训练的，而本次运行的基础模型是 {own}。只有两者权重相同时才能继续。</translation>
    </message>
    <message>
        <source>The answers so far are kept in {path}. Run the same command again to continue.</source>
        <translation>目前的回答保存在 {path}。再次运行同一命令即可继续。</translation>
    </message>
    <message>
        <source>The base model comes quantized ({format}) and is used as it is.</source>
        <translation>基座模型本身已量化（{format}），将直接使用。</translation>
    </message>
    <message>
        <source>The base model comes quantized ({format}). It is unpacked as it loads and quantized again to {kind}.</source>
        <translation>基座模型本身已量化（{format}），加载时会先还原，再量化为 {kind}。</translation>
    </message>
    <message>
        <source>The base model comes quantized ({format}). It is unpacked as it loads.</source>
        <translation>基座模型本身已量化（{format}），加载时会还原。</translation>
    </message>
    <message>
        <source>The certificate of {host} is not trusted.</source>
        <translation>{host} 的证书不受信任。</translation>
    </message>
    <message>
        <source>The check {check} has no repair ({kind}).</source>
        <translation>检查项 {check} 没有修复方法（{kind}）。</translation>
    </message>
    <message>
        <source>The column {column} says which answers are good.</source>
        <translation>{column} 列说明哪些回答是好的。</translation>
    </message>
    <message>
        <source>The computer must be restarted before the subsystem works.</source>
        <translation>重启电脑后子系统才能使用。</translation>
    </message>
    <message>
        <source>The connection to {host} broke.</source>
        <translation>与 {host} 的连接中断。</translation>
    </message>
    <message>
        <source>The correlation with the right numbers is {value}.</source>
        <translation>与正确数值的相关系数为 {value}。</translation>
    </message>
    <message>
        <source>The data has no problems of a task, which its columns {task} and {entry} would name.</source>
        <translation>数据中没有练习任务的题目，题目应由 {task} 和 {entry} 列给出。</translation>
    </message>
    <message>
        <source>The data holds a row without a prompt of its own, such as plain text. The model can&apos;t answer it itself.</source>
        <translation>数据中有一行没有自己的提示词（例如纯文本），模型无法自行作答。</translation>
    </message>
    <message>
        <source>The data holds preference pairs. The chosen answers are trained, the rejected ones are not. An objective such as DPO learns from both.</source>
        <translation>数据是偏好对：只训练选中的回答，不训练被拒绝的回答。DPO 等训练目标会从两者中学习。</translation>
    </message>
    <message>
        <source>The data holds preference pairs: in so many, the better answer scores higher. 50% is chance. Before training the scores are arbitrary.</source>
        <translation>数据是偏好对：这是较好的回答得分更高的比例，50% 相当于随机。训练前的分数没有意义。</translation>
    </message>
    <message>
        <source>The data holds preference pairs: in so many, training made the better answer likelier compared with the worse one. 50% is chance.</source>
        <translation>数据为偏好对：表示训练后有多少对中，较好回答相对较差回答的概率提高了。50% 相当于随机。</translation>
    </message>
    <message>
        <source>The distribution uses WSL 1, which can&apos;t use a GPU.</source>
        <translation>该发行版使用 WSL 1，无法使用显卡。</translation>
    </message>
    <message>
        <source>The distribution uses WSL 1, which has no GPU. Only needed as a fallback.</source>
        <translation>该发行版使用 WSL 1，没有显卡支持。仅作备用。</translation>
    </message>
    <message>
        <source>The driver changed from {before} to {now} since the training test.</source>
        <translation>训练测试之后，驱动从 {before} 变成了 {now}。</translation>
    </message>
    <message>
        <source>The driver does not report the memory.</source>
        <translation>驱动没有报告显存。</translation>
    </message>
    <message>
        <source>The engine could not convert the example&apos;s base model (exit code {exit_code}).</source>
        <translation>引擎无法转换示例的基础模型（退出码 {exit_code}）。</translation>
    </message>
    <message>
        <source>The environment has to be rebuilt, but a run is using it.</source>
        <translation>环境需要重建，但有运行正在使用它。</translation>
    </message>
    <message>
        <source>The export is not equal to the trained model, so it was not kept: {reason}.</source>
        <translation>导出结果与训练后的模型不一致，因此没有保留：{reason}。</translation>
    </message>
    <message>
        <source>The gradients of all layers are held until the update.</source>
        <translation>所有层的梯度保留到更新时。</translation>
    </message>
    <message>
        <source>The head of transformers computes this objective.</source>
        <translation>该目标由 transformers 的输出头计算。</translation>
    </message>
    <message>
        <source>The hub asks for an access token for {id}.</source>
        <translation>模型站要求提供访问令牌才能下载 {id}。</translation>
    </message>
    <message>
        <source>The hub does not let this account write to {id}.</source>
        <translation>模型站不允许此账号写入 {id}。</translation>
    </message>
    <message>
        <source>The largest number is {largest:g}. Numbers between -1 and 1 are learned much faster: divide them.</source>
        <translation>最大的数值为 {largest:g}。-1 到 1 之间的数值学得快得多，请先除以一个数。</translation>
    </message>
    <message>
        <source>The last training test failed: {message}</source>
        <translation>上次训练测试失败：{message}</translation>
    </message>
    <message>
        <source>The level must be 1, 2 or 3.</source>
        <translation>难度只能是 1、2 或 3。</translation>
    </message>
    <message>
        <source>The license of the base model applies here too: {licence}</source>
        <translation>基础模型的许可证同样适用：{licence}</translation>
    </message>
    <message>
        <source>The loss is in nats per token and tells how unexpected the right tokens are: 0.7 less makes each of them twice as likely, on average.</source>
        <translation>损失的单位是每词元纳特，表示正确的词元有多出乎意料：减少 0.7，正确词元的概率平均就翻一倍。</translation>
    </message>
    <message>
        <source>The loss is the cross-entropy of right and wrong in nats per step: 0.7 less makes the right verdict twice as likely, on average. Guessing costs 0.69.</source>
        <translation>损失是每个步骤上对错判断的交叉熵，单位为奈特：平均每降低 0.7，正确判断的概率就翻倍。瞎猜时为 0.69。</translation>
    </message>
    <message>
        <source>The loss is the cross-entropy of the right class in nats: 0.7 less makes it twice as likely, on average.</source>
        <translation>损失是正确类别的交叉熵（单位 nat）：平均每降低 0.7，正确类别的概率就翻一倍。</translation>
    </message>
    <message>
        <source>The loss is the mean of the squared differences between predicted and right numbers.</source>
        <translation>损失是预测值与正确数值之差的平方的平均值。</translation>
    </message>
    <message>
        <source>The loss is the mean over answers. The lower it is, the more clearly good answers are preferred and bad ones avoided. Where every answer counts alike it begins at 0.5.</source>
        <translation>损失是所有回答的平均值。越低，说明模型越偏向好的回答、越避开差的回答。所有回答权重相同时，从 0.5 开始。</translation>
    </message>
    <message>
        <source>The model answers each prompt itself. What stands between [[ and ]] is what its answers should be.</source>
        <translation>模型自己回答每条提示词。[[ 与 ]] 之间是它的回答应有的内容。</translation>
    </message>
    <message>
        <source>The model got worse: the mean reward for held-out prompts fell from {before} to {after}.</source>
        <translation>模型变差了：留出提示词的平均奖励从 {before} 降至 {after}。</translation>
    </message>
    <message>
        <source>The model has no part named {part}. Its modules are {known}.</source>
        <translation>模型中没有名为 {part} 的部分。它的模块有：{known}。</translation>
    </message>
    <message>
        <source>The model is made for {most} tokens at most.</source>
        <translation>该模型最多适用于 {most} 个词元。</translation>
    </message>
    <message>
        <source>The model moves far away from where it began: {kl} nats per token. It may be exploiting the reward. A lower learning rate or a higher beta holds it back.</source>
        <translation>模型已远离起点：每个词元 {kl} 奈特。它可能在钻奖励的空子。降低学习率或提高 beta 可以约束它。</translation>
    </message>
    <message>
        <source>The model saw a few rows again and again: the {num_rows} training rows hold only {num_distinct} different ones.</source>
        <translation>模型反复看到少数几行：{num_rows} 行训练数据中只有 {num_distinct} 行各不相同。</translation>
    </message>
    <message>
        <source>The model&apos;s experts are not trained.</source>
        <translation>此模型的专家不会被训练。</translation>
    </message>
    <message>
        <source>The model&apos;s experts are not trained: for this type, &quot;all-linear&quot; doesn&apos;t include them.</source>
        <translation>不训练模型的专家：对这种类型，“all-linear”不包括专家。</translation>
    </message>
    <message>
        <source>The number of problems must be 1 to {most:,}.</source>
        <translation>题目数量必须在 1 到 {most:,} 之间。</translation>
    </message>
    <message>
        <source>The packages belong to another version of Tunesmith.</source>
        <translation>这些包属于另一个版本的 Tunesmith。</translation>
    </message>
    <message>
        <source>The packages for tasks and JSON schemas are not installed.</source>
        <translation>尚未安装练习任务和 JSON 模式所需的软件包。</translation>
    </message>
    <message>
        <source>The packages for tasks and JSON schemas can&apos;t be used: {problem}.</source>
        <translation>无法使用练习任务和 JSON 模式所需的软件包：{problem}。</translation>
    </message>
    <message>
        <source>The process that scores answers has ended.</source>
        <translation>给回答打分的进程已结束。</translation>
    </message>
    <message>
        <source>The profile {name} is not available on this system yet.</source>
        <translation>此系统暂不支持配置 {name}。</translation>
    </message>
    <message>
        <source>The proxy {proxy} asks for a user name and password.</source>
        <translation>代理 {proxy} 要求用户名和密码。</translation>
    </message>
    <message>
        <source>The proxy {proxy} can&apos;t be reached.</source>
        <translation>无法连接代理 {proxy}。</translation>
    </message>
    <message>
        <source>The proxy {proxy} refused the connection.</source>
        <translation>代理 {proxy} 拒绝了连接。</translation>
    </message>
    <message>
        <source>The reward margin, by how much it rates good answers above bad ones, is {after}.</source>
        <translation>奖励差距，即好的回答比差的回答高出多少，为 {after}。</translation>
    </message>
    <message>
        <source>The run continues under different conditions.</source>
        <translation>运行在不同的条件下继续。</translation>
    </message>
    <message>
        <source>The run does not fit.</source>
        <translation>内存放不下这次运行。</translation>
    </message>
    <message>
        <source>The run fits, but only just.</source>
        <translation>内存刚好放得下这次运行。</translation>
    </message>
    <message>
        <source>The run fits.</source>
        <translation>内存放得下这次运行。</translation>
    </message>
    <message>
        <source>The run is set to use a GPU, but no NVIDIA driver was found.</source>
        <translation>运行设为使用显卡，但没有找到 NVIDIA 驱动。</translation>
    </message>
    <message>
        <source>The run was stopped.</source>
        <translation>运行已停止。</translation>
    </message>
    <message>
        <source>The run {run} ended without a result: {path}.</source>
        <translation>运行 {run} 结束时没有结果：{path}。</translation>
    </message>
    <message>
        <source>The share of steps that are judged rightly. Before training the head is arbitrary.</source>
        <translation>判断正确的步骤所占的比例。训练前输出头是任意的。</translation>
    </message>
    <message>
        <source>The smaller numbers of this file change the answers: {agreement} of the next tokens are the same as in the trained model. A larger type, such as q8_0, loses less.</source>
        <translation>此文件的数值精度较低，会改变回答：只有 {agreement} 的下一个词元与训练后的模型相同。更大的类型（如 q8_0）损失更小。</translation>
    </message>
    <message>
        <source>The subsystem&apos;s Linux kernel is too old or missing.</source>
        <translation>子系统的 Linux 内核过旧或缺失。</translation>
    </message>
    <message>
        <source>The task has only {num} different problems of this level. Hold out fewer, or choose a higher level.</source>
        <translation>该任务在此难度下只有 {num} 道不同的题目。请减少留出数量，或选择更高的难度。</translation>
    </message>
    <message>
        <source>The tasks can&apos;t be used: {problem}.</source>
        <translation>无法使用练习任务：{problem}。</translation>
    </message>
    <message>
        <source>The trained model with positions stretched as in llama.cpp gives {distance}.</source>
        <translation>训练好的模型若像 llama.cpp 那样拉伸位置，相差{distance}。</translation>
    </message>
    <message>
        <source>The training environment inside {distribution} could not be built (exit code {exit_code}).</source>
        <translation>无法在 {distribution} 内构建训练环境（退出码 {exit_code}）。</translation>
    </message>
    <message>
        <source>The training environment is not installed.</source>
        <translation>训练环境尚未安装。</translation>
    </message>
    <message>
        <source>The trash is empty.</source>
        <translation>回收站是空的。</translation>
    </message>
    <message>
        <source>The warm-up has {warmup:,} steps and the run {total_steps:,}, so the learning rate never reaches its full value. Use a shorter warm-up.</source>
        <translation>预热有 {warmup:,} 步，而整个运行只有 {total_steps:,} 步，学习率不会达到设定值。请缩短预热。</translation>
    </message>
    <message>
        <source>The window opens and sets up training with you. It asks before it downloads more.</source>
        <translation>窗口将打开并引导你准备训练环境，下载前会先询问。</translation>
    </message>
    <message>
        <source>There are no runs yet.</source>
        <translation>还没有运行。</translation>
    </message>
    <message>
        <source>There is no GPU {wanted} in this computer.</source>
        <translation>此电脑上没有显卡 {wanted}。</translation>
    </message>
    <message>
        <source>There is no Linux distribution of that name.</source>
        <translation>没有这个名称的 Linux 发行版。</translation>
    </message>
    <message>
        <source>There is no check named {check}. Available: {every}.</source>
        <translation>没有名为 {check} 的检查项。可用的有：{every}。</translation>
    </message>
    <message>
        <source>There is no earlier training environment on this computer.</source>
        <translation>此电脑上没有更早的训练环境。</translation>
    </message>
    <message>
        <source>There is no model in {folder}: config.json is missing.</source>
        <translation>{folder} 中没有模型：缺少 config.json。</translation>
    </message>
    <message>
        <source>There is no task {task}. The tasks are:
{listed}</source>
        <translation>没有名为 {task} 的任务。可用的任务：
{listed}</translation>
    </message>
    <message>
        <source>They contain the same packages.</source>
        <translation>两者的包完全相同。</translation>
    </message>
    <message>
        <source>This did not help.</source>
        <translation>没有效果。</translation>
    </message>
    <message>
        <source>This environment was built from an unknown lock file.</source>
        <translation>此环境由未知的锁定文件构建。</translation>
    </message>
    <message>
        <source>This is an estimate. To measure it: tunesmith check SPEC.json</source>
        <translation>这是估算值。要实测请运行：tunesmith check SPEC.json</translation>
    </message>
    <message>
        <source>This model of type {kind} can&apos;t be exported as GGUF. llama.cpp computes it differently, so the file would answer wrongly: {problem}.</source>
        <translation>这个 {kind} 类型的模型无法导出为 GGUF。llama.cpp 的计算方式不同，因此该文件会给出错误的回答：{problem}。</translation>
    </message>
    <message>
        <source>This step ended without an error but changed nothing: {step}</source>
        <translation>这一步没有报错，但也没有效果：{step}</translation>
    </message>
    <message>
        <source>This step was not confirmed: {step}</source>
        <translation>这一步没有得到确认：{step}</translation>
    </message>
    <message>
        <source>Time: not known yet, because no run like this one has finished on this device. To measure a step: tunesmith check SPEC.json</source>
        <translation>用时：尚不清楚，因为此设备上还没有完成过类似的训练。要测量一步：tunesmith check SPEC.json</translation>
    </message>
    <message>
        <source>To fix it: {label}</source>
        <translation>解决办法：{label}</translation>
    </message>
    <message>
        <source>To keep all of every text, have longer texts split (Longer examples: Split), or raise the context length to {longest_tokens} tokens.</source>
        <translation>如需保留文本的全部内容，请拆分过长的文本（“过长的样本”选“拆分”），或将上下文长度增大到 {longest_tokens} 个词元。</translation>
    </message>
    <message>
        <source>To keep every row whole, raise the context length to {longest_tokens} tokens, or skip longer rows.</source>
        <translation>如需保留每一行的完整内容，请将上下文长度增大到 {longest_tokens} 个词元；也可以跳过过长的数据行。</translation>
    </message>
    <message>
        <source>Too few held-out rows to tell whether the model improved: over {num_rows} of them the loss went from {before} to {after}, which may be chance.</source>
        <translation>留出的行太少，无法判断模型是否变好：在这 {num_rows} 行上，损失从 {before} 变为 {after}，这可能是偶然。</translation>
    </message>
    <message>
        <source>Total</source>
        <translation>合计</translation>
    </message>
    <message>
        <source>Train on them as on any prompts with responses. A model can be wrong: review them first.</source>
        <translation>可以像使用其他带回答的提示词一样用它们训练。模型可能出错，请先审阅。</translation>
    </message>
    <message>
        <source>Training environment inside {distribution}</source>
        <translation>{distribution} 内的训练环境</translation>
    </message>
    <message>
        <source>Training test</source>
        <translation>训练测试</translation>
    </message>
    <message>
        <source>Training was tested on {where} on {when}.</source>
        <translation>已于 {when} 在 {where} 上测试过训练。</translation>
    </message>
    <message>
        <source>Training works on {device}. It took {time}.</source>
        <translation>可以在 {device} 上训练。用时 {time}。</translation>
    </message>
    <message>
        <source>Tunesmith is installed in {folder}. Open it from the menu or with the command tunesmith.</source>
        <translation>Tunesmith 已安装到 {folder}。可从菜单或用命令 tunesmith 打开。</translation>
    </message>
    <message>
        <source>Tunesmith is not installed in {folder}.</source>
        <translation>{folder} 中没有安装 Tunesmith。</translation>
    </message>
    <message>
        <source>Tunesmith runs from {folder}, which has no list of its files.</source>
        <translation>Tunesmith 从 {folder} 运行，该文件夹没有文件清单。</translation>
    </message>
    <message>
        <source>Tunesmith runs on Python {running}. Building environments needs Python 3.11 to 3.13, and none was found.</source>
        <translation>Tunesmith 正使用 Python {running}。构建环境需要 Python 3.11 至 3.13，但没有找到。</translation>
    </message>
    <message>
        <source>Tunesmith runs on Python {running}. Environments can be built with {names}.</source>
        <translation>Tunesmith 正使用 Python {running}。可用 {names} 构建环境。</translation>
    </message>
    <message>
        <source>Tunesmith runs on Python {running}. Looking for others took too long.</source>
        <translation>Tunesmith 正使用 Python {running}。查找其他 Python 超时。</translation>
    </message>
    <message>
        <source>Tunesmith was removed.</source>
        <translation>Tunesmith 已卸载。</translation>
    </message>
    <message>
        <source>Tunesmith {version}</source>
        <translation>Tunesmith {version}</translation>
    </message>
    <message>
        <source>Turn virtualization on in the firmware (BIOS/UEFI) settings, then restart.</source>
        <translation>请在固件（BIOS/UEFI）设置中开启虚拟化，然后重启。</translation>
    </message>
    <message>
        <source>Verified equal</source>
        <translation>已验证一致</translation>
    </message>
    <message>
        <source>Verified: only rounding differs</source>
        <translation>已验证：仅有舍入差异</translation>
    </message>
    <message>
        <source>With DoRA they can have no adapter: turn DoRA off to train them too.</source>
        <translation>使用 DoRA 时专家不能有适配器：若也要训练专家，请关闭 DoRA。</translation>
    </message>
    <message>
        <source>With chosen layers they can have no adapter: leave Layers empty to train them too.</source>
        <translation>选定层时专家不能有适配器：若也要训练专家，请将“层”留空。</translation>
    </message>
    <message>
        <source>With dropout they can have no adapter: set Dropout to 0 to train them too.</source>
        <translation>使用 dropout 时专家不能有适配器：若也要训练专家，请将 Dropout 设为 0。</translation>
    </message>
    <message>
        <source>With these initial values they can have no adapter: choose default or gaussian ones to train them too.</source>
        <translation>使用这种初始值时专家不能有适配器：若也要训练专家，请将初始值设为 default 或 gaussian。</translation>
    </message>
    <message>
        <source>Without effect in this run: {settings}.</source>
        <translation>在这次训练中不起作用：{settings}。</translation>
    </message>
    <message>
        <source>Write --sheet NAME, where NAME is one of these: {names}</source>
        <translation>请写 --sheet 名称，名称为以下之一：{names}</translation>
    </message>
    <message>
        <source>Wrote {rows}: {path}</source>
        <translation>已写入 {rows}：{path}</translation>
    </message>
    <message>
        <source>Your list of models is not what a list has to be: {path}</source>
        <translation>您的模型列表格式不正确：{path}</translation>
    </message>
    <message>
        <source>a list of texts</source>
        <translation>由文本组成的列表</translation>
    </message>
    <message>
        <source>a task, such as chain_sum</source>
        <translation>任务名，例如 chain_sum</translation>
    </message>
    <message>
        <source>adapter.initial_values: PiSSA, OLoRA and EVA are for linear layers only, which {name} is not.</source>
        <translation>adapter.initial_values：PiSSA、OLoRA 和 EVA 只用于线性层，而 {name} 不是线性层。</translation>
    </message>
    <message>
        <source>adapter.rank: {rank} is too high for {name}, whose smaller side is {most}.</source>
        <translation>adapter.rank：{rank} 对 {name} 来说太高，它较短的一边只有 {most}。</translation>
    </message>
    <message>
        <source>adapter.{name} is {given}, but the adapter to start from has {value}.</source>
        <translation>adapter.{name} 为 {given}，但起始适配器的值是 {value}。</translation>
    </message>
    <message>
        <source>another one gives other problems</source>
        <translation>不同的种子给出不同的题目</translation>
    </message>
    <message>
        <source>can&apos;t be continued by this kind of run. Leave it empty</source>
        <translation>这类运行不支持从适配器继续训练，请留空</translation>
    </message>
    <message>
        <source>compared with</source>
        <translation>对比对象</translation>
    </message>
    <message>
        <source>compares with answers, and the data has none. Choose another reward</source>
        <translation>需要与答案比较，而数据中没有答案。请选择其他奖励</translation>
    </message>
    <message>
        <source>continues</source>
        <translation>继续训练自</translation>
    </message>
    <message>
        <source>fails: {problem}</source>
        <translation>失败：{problem}</translation>
    </message>
    <message>
        <source>found</source>
        <translation>结果</translation>
    </message>
    <message>
        <source>holds labels of steps, which only a process reward model learns from</source>
        <translation>含有步骤标签，只有过程奖励模型会学习这种数据</translation>
    </message>
    <message>
        <source>holds prompts without answers. Only runs that learn from rewards write the answers themselves</source>
        <translation>只有提示词，没有回答。只有从奖励中学习的训练会自己写回答</translation>
    </message>
    <message>
        <source>how hard they are: 1, 2 or 3</source>
        <translation>难度：1、2 或 3</translation>
    </message>
    <message>
        <source>is for LoRA only. Leave it empty to compare with the base model</source>
        <translation>只适用于 LoRA。留空即与基础模型比较</translation>
    </message>
    <message>
        <source>is missing. Choose a bigger model</source>
        <translation>未填写。请选择一个更大的模型</translation>
    </message>
    <message>
        <source>is not a setting of this version. The settings here are: {names}</source>
        <translation>不是此版本的设置。此处的设置有：{names}</translation>
    </message>
    <message>
        <source>it chooses the same token at {share:.0%} of {count} positions, with a divergence of {kl:.2g} nats, where 0 is equal</source>
        <translation>在 {count} 个位置中，{share:.0%} 选了相同的词元，散度为 {kl:.2g} 纳特（0 表示完全相同）</translation>
    </message>
    <message>
        <source>it has weights for {modules}, the trained adapter has none there</source>
        <translation>它含有 {modules} 的权重，而所训练的适配器在那里没有权重</translation>
    </message>
    <message>
        <source>it sees images as a whole</source>
        <translation>它把图像作为整体来看</translation>
    </message>
    <message>
        <source>its MLPs come behind attention</source>
        <translation>它的 MLP 排在注意力之后</translation>
    </message>
    <message>
        <source>its MLPs have the activation {name}</source>
        <translation>它的 MLP 使用激活函数 {name}</translation>
    </message>
    <message>
        <source>its embedding and its head are one weight with two scales</source>
        <translation>它的嵌入和输出层是同一个权重，却有两种缩放</translation>
    </message>
    <message>
        <source>its embedding is its head</source>
        <translation>它的嵌入就是它的输出层</translation>
    </message>
    <message>
        <source>its layers have biases</source>
        <translation>它的层带有偏置</translation>
    </message>
    <message>
        <source>its layers have no biases</source>
        <translation>它的层没有偏置</translation>
    </message>
    <message>
        <source>its queries and keys have norms</source>
        <translation>它的查询和键带有归一化</translation>
    </message>
    <message>
        <source>its rank {rank} is above that of the trained adapter, {own}</source>
        <translation>它的秩 {rank} 高于所训练适配器的秩 {own}</translation>
    </message>
    <message>
        <source>its residuals begin behind a norm</source>
        <translation>它的残差从归一化之后开始</translation>
    </message>
    <message>
        <source>let a local model answer the prompts of data, to learn from it</source>
        <translation>让本地模型回答数据中的提示词，以供学习</translation>
    </message>
    <message>
        <source>let the model as it was before the run answer instead</source>
        <translation>改由运行之前的模型回答</translation>
    </message>
    <message>
        <source>let the trained model answer, and then the model before the run</source>
        <translation>先由训练后的模型回答，再由运行之前的模型回答</translation>
    </message>
    <message>
        <source>license, such as apache-2.0</source>
        <translation>许可证，例如 apache-2.0</translation>
    </message>
    <message>
        <source>line {line}</source>
        <translation>第 {line} 行</translation>
    </message>
    <message>
        <source>llama.cpp rounds where the stretching of positions (YaRN) begins and ends; this model does not. Answers can differ, the more so the longer a text is.</source>
        <translation>llama.cpp 会对位置拉伸（YaRN）的起点和终点取整，而此模型不会。回答可能有差异，文本越长差异越大。</translation>
    </message>
    <message>
        <source>model.new_tokens: these words are one token each already. Remove them: {words}</source>
        <translation>model.new_tokens：这些词各自已经是一个词元，请去掉：{words}</translation>
    </message>
    <message>
        <source>must be 0 for {values}, which does not work with dropout</source>
        <translation>使用 {values} 时必须为 0，因为它不能与 dropout 一起使用</translation>
    </message>
    <message>
        <source>must be above {limit}</source>
        <translation>必须大于 {limit}</translation>
    </message>
    <message>
        <source>must be at least 2 for OFT</source>
        <translation>使用 OFT 时必须至少为 2</translation>
    </message>
    <message>
        <source>must be at least {limit}</source>
        <translation>不能小于 {limit}</translation>
    </message>
    <message>
        <source>must be at most {limit}</source>
        <translation>不能大于 {limit}</translation>
    </message>
    <message>
        <source>must be none for {kind}, which PEFT does not support on 4 or 8 bits</source>
        <translation>使用 {kind} 时必须为“无”，因为 PEFT 不支持在 4 位或 8 位权重上使用它</translation>
    </message>
    <message>
        <source>must be {wanted}, not {value}</source>
        <translation>必须是{wanted}，不能是 {value}</translation>
    </message>
    <message>
        <source>show rows as they are read, or token by token as training sees them</source>
        <translation>按读取结果显示各行，或按训练所见逐词元显示</translation>
    </message>
    <message>
        <source>the file is cut short: {size:,.1f} of {needed:,.1f} MiB</source>
        <translation>文件不完整：只有 {size:,.1f} MiB，应为 {needed:,.1f} MiB</translation>
    </message>
    <message>
        <source>the gate of its scans comes behind a norm</source>
        <translation>它的扫描的门排在归一化之后</translation>
    </message>
    <message>
        <source>the header names the column &quot;{name}&quot; twice</source>
        <translation>表头中列“{name}”出现了两次</translation>
    </message>
    <message>
        <source>the header names {num_columns:,} columns. The most is {max_columns:,}</source>
        <translation>表头有 {num_columns:,} 列，最多 {max_columns:,} 列</translation>
    </message>
    <message>
        <source>the name ends in &quot;{suffix}&quot;, but the content is something else. Save the file again as {suffix}, or give it the ending of what it is.</source>
        <translation>文件名以“{suffix}”结尾，但内容是别的格式。把文件重新存为 {suffix}，或改成与内容相符的扩展名。</translation>
    </message>
    <message>
        <source>the quote that opens here has no closing quote at the end of its field, so nothing behind it can be read. Close it, or write it twice if it belongs to the text.</source>
        <translation>从这里开始的引号在该字段末尾没有对应的右引号，因此后面的内容无法读取。请补上右引号；如果引号是文本的一部分，请写两次。</translation>
    </message>
    <message>
        <source>the row that begins here is longer than {most:,} characters. Is a closing quote missing?</source>
        <translation>从这里开始的行超过 {most:,} 个字符。是否缺少右引号？</translation>
    </message>
    <message>
        <source>the time steps of its scans have limits</source>
        <translation>它的扫描的时间步有界限</translation>
    </message>
    <message>
        <source>the workbook can&apos;t be read: {error}.</source>
        <translation>无法读取工作簿：{error}。</translation>
    </message>
    <message>
        <source>transformers&apos; own code for this type of model can&apos;t run with the settings in config.json</source>
        <translation>transformers 中这类模型的代码无法按 config.json 的设置运行</translation>
    </message>
    <message>
        <source>two of its parts expect tensors of different sizes</source>
        <translation>其中两个部分需要的张量大小不一致</translation>
    </message>
    <message>
        <source>writing</source>
        <translation>生成</translation>
    </message>
    <message>
        <source>{folder}: the model needs code of its own (auto_map in config.json), for transformers doesn&apos;t know the type {model_type}. Tunesmith never runs the code of a model.</source>
        <translation>{folder}：该模型需要自带的代码（config.json 中的 auto_map），因为 transformers 不认识 {model_type} 类型。Tunesmith 从不运行模型自带的代码。</translation>
    </message>
    <message>
        <source>{folder}: {size:,.1f} GiB more are needed, but only {free:,.1f} GiB are free.</source>
        <translation>{folder}：还需要 {size:,.1f} GiB，但只剩 {free:,.1f} GiB 可用空间。</translation>
    </message>
    <message>
        <source>{host} can&apos;t be reached.</source>
        <translation>无法连接 {host}。</translation>
    </message>
    <message>
        <source>{host} did not accept the access token.</source>
        <translation>{host} 不接受该访问令牌。</translation>
    </message>
    <message>
        <source>{host} sent nothing for too long.</source>
        <translation>{host} 太久没有发送内容。</translation>
    </message>
    <message>
        <source>{kind} files are read by the engine only.</source>
        <translation>{kind} 文件只能由引擎读取。</translation>
    </message>
    <message>
        <source>{mean} points ({low} … {high})</source>
        <translation>{mean} 个百分点（{low} … {high}）</translation>
    </message>
    <message>
        <source>{name} ({kind}) has none of {names}.</source>
        <translation>{name}（{kind}）没有 {names} 中的任何一个。</translation>
    </message>
    <message>
        <source>{name} ({kind}) is not a norm.</source>
        <translation>{name}（{kind}）不是归一化层。</translation>
    </message>
    <message>
        <source>{num_fused} of {num_layers} layers run on Tunesmith&apos;s own path.</source>
        <translation>{num_layers} 层中有 {num_fused} 层使用 Tunesmith 自己的计算路径。</translation>
    </message>
    <message>
        <source>{num} runs are named {name!r}, newest first: {ids}.</source>
        <translation>有 {num} 个运行名为 {name!r}，从新到旧：{ids}。</translation>
    </message>
    <message>
        <source>{path} can&apos;t use the chat template {name}: its vocabulary lacks {tokens}.</source>
        <translation>{path} 不能使用对话模板 {name}：其词表缺少 {tokens}。</translation>
    </message>
    <message>
        <source>{path} does not hold the trained weight {name}.</source>
        <translation>{path} 中没有训练好的权重 {name}。</translation>
    </message>
    <message>
        <source>{path} exists already and is not this export.</source>
        <translation>{path} 已存在，但不是这次导出的内容。</translation>
    </message>
    <message>
        <source>{path} exists already. Choose another name, or --overwrite.</source>
        <translation>{path} 已存在。请换一个名称，或使用 --overwrite。</translation>
    </message>
    <message>
        <source>{path} holds no questions and answers, as another file does. They can&apos;t be mixed.</source>
        <translation>{path} 不含问答，而另一个文件含有问答，无法混合。</translation>
    </message>
    <message>
        <source>{path} holds questions or chats. Questions are written about documents.</source>
        <translation>{path} 里是问答或对话。只能根据文档生成问答。</translation>
    </message>
    <message>
        <source>{path} holds rows of another kind ({columns}); this conversation can&apos;t stand among them.</source>
        <translation>{path} 中的行属于另一种格式（{columns}）；这段对话不能放入其中。</translation>
    </message>
    <message>
        <source>{path} is a folder. Name a file.</source>
        <translation>{path} 是文件夹。请指定一个文件。</translation>
    </message>
    <message>
        <source>{path} is missing or damaged.</source>
        <translation>{path} 缺失或已损坏。</translation>
    </message>
    <message>
        <source>{path} is missing or empty.</source>
        <translation>{path} 缺失或为空。</translation>
    </message>
    <message>
        <source>{path} is named twice.</source>
        <translation>{path} 被指定了两次。</translation>
    </message>
    <message>
        <source>{path} is not UTF-8. It is read as {encoding}.</source>
        <translation>{path} 不是 UTF-8 编码，按 {encoding} 读取。</translation>
    </message>
    <message>
        <source>{path} is this export, but {names} changed since.</source>
        <translation>{path} 是这次导出的内容，但 {names} 之后被改动过。</translation>
    </message>
    <message>
        <source>{path} names no environment. Installed, but not in use: {name}.</source>
        <translation>{path} 没有指向任何环境。已安装但未启用：{name}。</translation>
    </message>
    <message>
        <source>{path} reads at most {most:,} tokens, too few for {number} questions per passage.</source>
        <translation>{path} 最多读取 {most:,} 个词元，不够每个段落生成 {number} 个问题。</translation>
    </message>
    <message>
        <source>{path} was begun with other documents or settings.</source>
        <translation>{path} 是用其他文档或设置开始生成的。</translation>
    </message>
    <message>
        <source>{path}, line {line}: {problem}.</source>
        <translation>{path}，第 {line} 行：{problem}。</translation>
    </message>
    <message>
        <source>{path}: a JSON schema is an object.</source>
        <translation>{path}：JSON 模式必须是一个对象。</translation>
    </message>
    <message>
        <source>{path}: a model wrote every row, and nobody has reviewed any.</source>
        <translation>{path}：所有行都由模型生成，且均未审核。</translation>
    </message>
    <message>
        <source>{path}: a report is an .html or a .pdf file.</source>
        <translation>{path}：报告是 .html 或 .pdf 文件。</translation>
    </message>
    <message>
        <source>{path}: a token has the number {number}, which no model knows.</source>
        <translation>{path}：有词元的编号是 {number}，没有模型能识别。</translation>
    </message>
    <message>
        <source>{path}: all {rows:,} rows, each taken once.</source>
        <translation>{path}：全部 {rows:,} 行，每行用一次。</translation>
    </message>
    <message>
        <source>{path}: lines above the heading of the sheet are not read: {lines}.</source>
        <translation>{path}：工作表标题行上方的文字不会被读取：{lines}。</translation>
    </message>
    <message>
        <source>{path}: lines that are damaged: {count:,}. What they reported is missing.</source>
        <translation>{path}：有 {count:,} 行已损坏，其中报告的内容缺失。</translation>
    </message>
    <message>
        <source>{path}: no passage is long enough to ask about.</source>
        <translation>{path}：没有足够长的段落可供提问。</translation>
    </message>
    <message>
        <source>{path}: no row has a prompt that a model could answer.</source>
        <translation>{path}：没有哪一行带有模型可以回答的提示词。</translation>
    </message>
    <message>
        <source>{path}: rows behind the error are not counted. Rows before it: {number:,}.</source>
        <translation>{path}：出错位置之后的行未统计，之前有 {number:,} 行。</translation>
    </message>
    <message>
        <source>{path}: rows that a model wrote and nobody has reviewed ({num:,}).</source>
        <translation>{path}：由模型生成且尚未审核的行（{num:,}）。</translation>
    </message>
    <message>
        <source>{path}: rows that a model wrote and nobody has reviewed are left out ({num:,}).</source>
        <translation>{path}：由模型生成且尚未审核的行已被略过（{num:,}）。</translation>
    </message>
    <message>
        <source>{path}: rows whose label is false are left out ({num:,}).</source>
        <translation>{path}：标签为 false 的行已略过（{num:,} 行）。</translation>
    </message>
    <message>
        <source>{path}: sheet &quot;{sheet}&quot;</source>
        <translation>{path}：工作表“{sheet}”</translation>
    </message>
    <message>
        <source>{path}: the adapter was trained on a base model whose files differ from those of {model}.</source>
        <translation>{path}：训练该适配器时所用的基础模型，其文件与 {model} 的文件不同。</translation>
    </message>
    <message>
        <source>{path}: the base model finds every token equally likely, before any training.</source>
        <translation>{path}：基础模型在训练之前就认为每个词元的可能性相同。</translation>
    </message>
    <message>
        <source>{path}: the label of every row is false.</source>
        <translation>{path}：每一行的标签都是 false。</translation>
    </message>
    <message>
        <source>{path}: the reward model has another chat template than the model that is trained.</source>
        <translation>{path}：奖励模型的对话模板与所训练的模型不同。</translation>
    </message>
    <message>
        <source>{path}: the reward model has no chat template.</source>
        <translation>{path}：奖励模型没有对话模板。</translation>
    </message>
    <message>
        <source>{path}: the reward model has other tokens than the model that is trained.</source>
        <translation>{path}：奖励模型的词元与所训练的模型不同。</translation>
    </message>
    <message>
        <source>{path}: the reward of an answer is not a finite number. The answer begins: {text}</source>
        <translation>{path}：某个回答的奖励不是有限数。该回答的开头：{text}</translation>
    </message>
    <message>
        <source>{path}: the sheet &quot;{sheet}&quot; is read. These are not: {names}.</source>
        <translation>{path}：读取的工作表是“{sheet}”，未读取：{names}。</translation>
    </message>
    <message>
        <source>{path}: the tokenizer gives {token!r} the number {number}, but the model knows only {rows} tokens.</source>
        <translation>{path}：分词器给 {token!r} 的编号是 {number}，但模型只认识 {rows} 个词元。</translation>
    </message>
    <message>
        <source>{path}: the vocabulary can&apos;t be read.</source>
        <translation>{path}：无法读取词表。</translation>
    </message>
    <message>
        <source>{path}: the weight {name} has no place in a model of these settings.</source>
        <translation>{path}：按这些设置建立的模型中没有权重 {name} 的位置。</translation>
    </message>
    <message>
        <source>{path}: the weight {name} has the shape {held}. By config.json it would be {wanted}.</source>
        <translation>{path}：权重 {name} 的形状是 {held}，而按 config.json 应为 {wanted}。</translation>
    </message>
    <message>
        <source>{path}: the weight {name} holds NaN or infinite numbers.</source>
        <translation>{path}：权重 {name} 中有 NaN 或无穷大的数值。</translation>
    </message>
    <message>
        <source>{path}: the weight {name} holds zeros only.</source>
        <translation>{path}：权重 {name} 只包含零。</translation>
    </message>
    <message>
        <source>{path}: the weight {name} is missing.</source>
        <translation>{path}：缺少权重 {name}。</translation>
    </message>
    <message>
        <source>{path}: the weights are quantized ({method}).</source>
        <translation>{path}：权重已被量化（{method}）。</translation>
    </message>
    <message>
        <source>{path}: there is no column &quot;{column}&quot;, which is the group column (evaluation.group_column).</source>
        <translation>{path}：没有分组列“{column}”（evaluation.group_column）。</translation>
    </message>
    <message>
        <source>{path}: there is no function {name}(prompt, answer, expected).</source>
        <translation>{path}：没有函数 {name}(prompt, answer, expected)。</translation>
    </message>
    <message>
        <source>{path}: there is no reward model in this folder.</source>
        <translation>{path}：这个文件夹中没有奖励模型。</translation>
    </message>
    <message>
        <source>{path}: there is no row to train for its share of {share:g} % (data.sources[{number}].replay), because all are held out.</source>
        <translation>{path}：占比 {share:g} %（data.sources[{number}].replay），但没有可训练的行，因为全部都被留出了。</translation>
    </message>
    <message>
        <source>{path}: there is no row to train for its weight of {weight:g} ({setting}), because all are held out.</source>
        <translation>{path}：设了权重 {weight:g}（{setting}），但所有行都被留出，没有可训练的行。</translation>
    </message>
    <message>
        <source>{path}: there is no sheet &quot;{sheet}&quot;. It has: {names}.</source>
        <translation>{path}：没有工作表“{sheet}”。现有工作表：{names}。</translation>
    </message>
    <message>
        <source>{path}: these files are missing or changed: {names}.</source>
        <translation>{path}：以下文件缺失或已更改：{names}。</translation>
    </message>
    <message>
        <source>{path}: this model sorts texts into {num} classes and does not score them.</source>
        <translation>{path}：这个模型把文本分为 {num} 类，不给文本打分。</translation>
    </message>
    <message>
        <source>{path}: this model writes texts and does not score them.</source>
        <translation>{path}：这个模型生成文本，不给文本打分。</translation>
    </message>
    <message>
        <source>{path}: this objective learns from answers that are labeled good or bad, and no column is recognized as the label. The columns are {found}.</source>
        <translation>{path}：这个目标从标注了好坏的回答中学习，但没有识别出标签列。现有的列：{found}。</translation>
    </message>
    <message>
        <source>{path}: this objective learns from answers that are labeled good or bad, and the rows were not recognized as such. They are read as: {format}.</source>
        <translation>{path}：这个目标从标注了好坏的回答中学习，但这些数据行不是这种格式。它们被识别为：{format}。</translation>
    </message>
    <message>
        <source>{path}: this run did not learn to score answers.</source>
        <translation>{path}：这次训练没有学习给回答打分。</translation>
    </message>
    <message>
        <source>{path}: this run has not learned anything yet.</source>
        <translation>{path}：这次训练还没有学到任何内容。</translation>
    </message>
    <message>
        <source>{path}: {name} asks for &quot;{column}&quot;, but the data has no such column.</source>
        <translation>{path}：{name} 需要“{column}”，但数据中没有这一列。</translation>
    </message>
    <message>
        <source>{path}: {name} must return a number, but returned {value} ({kind}).</source>
        <translation>{path}：{name} 必须返回一个数字，却返回了 {value}（{kind}）。</translation>
    </message>
    <message>
        <source>{path}: {num:,} from {rows:,} rows, each taken {times} or {more} times.</source>
        <translation>{path}：{num:,} 个样本，来自 {rows:,} 行，每行用 {times} 或 {more} 次。</translation>
    </message>
    <message>
        <source>{path}: {num:,} from {rows:,} rows, each taken {times} times.</source>
        <translation>{path}：{num:,} 个样本，来自 {rows:,} 行，每行用 {times} 次。</translation>
    </message>
    <message>
        <source>{path}: {num:,} of its {rows:,} rows, others in each epoch.</source>
        <translation>{path}：从 {rows:,} 行中取 {num:,} 行，每轮取的行不同。</translation>
    </message>
    <message>
        <source>{path}: {num_left_out} weights have no place in a model of these settings, such as {name}.</source>
        <translation>{path}：有 {num_left_out} 个权重在按这些设置建立的模型中没有位置，例如 {name}。</translation>
    </message>
    <message>
        <source>{path}: {num_missing} weights are missing, such as {name}.</source>
        <translation>{path}：缺少 {num_missing} 个权重，例如 {name}。</translation>
    </message>
    <message>
        <source>{path}: {num_used:,} of {num_rows:,} rows are used.</source>
        <translation>{path}：使用 {num_rows:,} 行中的 {num_used:,} 行。</translation>
    </message>
    <message>
        <source>{path}: {share:.0%} of the examples of an epoch.</source>
        <translation>{path}：占每轮样本的 {share:.0%}。</translation>
    </message>
    <message>
        <source>{path}: {share:.0%} of the examples of the files with a weight.</source>
        <translation>{path}：占有权重文件样本的 {share:.0%}。</translation>
    </message>
    <message>
        <source>{path}: {task}: {reason}.</source>
        <translation>{path}：{task}：{reason}。</translation>
    </message>
    <message>
        <source>{pattern} is not a regular expression: {problem}.</source>
        <translation>{pattern} 不是正则表达式：{problem}。</translation>
    </message>
    <message>
        <source>{place}, bad answer</source>
        <translation>{place}，差的回答</translation>
    </message>
    <message>
        <source>{place}, column &quot;{column}&quot;: the label is missing.</source>
        <translation>{place}，“{column}”列：缺少标签。</translation>
    </message>
    <message>
        <source>{place}, column &quot;{column}&quot;: the token {number} is not among the {num:,} of {path}.</source>
        <translation>{place}，列“{column}”：词元 {number} 不在 {path} 的 {num:,} 个词元之中。</translation>
    </message>
    <message>
        <source>{place}, column &quot;{column}&quot;: {value} is not a label, but looks like a number of a scale.</source>
        <translation>{place}，“{column}”列：{value} 不是标签，看起来像评分。</translation>
    </message>
    <message>
        <source>{place}, column &quot;{column}&quot;: {value} is not a label.</source>
        <translation>{place}，“{column}”列：{value} 不是标签。</translation>
    </message>
    <message>
        <source>{place}, good answer</source>
        <translation>{place}，好的回答</translation>
    </message>
    <message>
        <source>{place}, worse answer</source>
        <translation>{place}，较差的回答</translation>
    </message>
    <message>
        <source>{place}: the answers in the columns &quot;{chosen}&quot; and &quot;{rejected}&quot; are to different questions.</source>
        <translation>{place}：“{chosen}”列和“{rejected}”列的回答对应不同的问题。</translation>
    </message>
    <message>
        <source>{place}: the data has no answers that could be compared with. Choose another reward.</source>
        <translation>{place}：数据中没有可供比对的答案。请选择其他奖励。</translation>
    </message>
    <message>
        <source>{place}: the row has no column &quot;{column}&quot;, which is the group column (evaluation.group_column).</source>
        <translation>{place}：该行没有分组列“{column}”（evaluation.group_column）。</translation>
    </message>
    <message>
        <source>{place}: {message}</source>
        <translation>{place}：{message}</translation>
    </message>
    <message>
        <source>{problem} The file is left out.</source>
        <translation>{problem}该文件已略去。</translation>
    </message>
    <message>
        <source>{rate:,.1f} passages/min</source>
        <translation>{rate:,.1f} 段/分钟</translation>
    </message>
    <message>
        <source>{rate}/s</source>
        <translation>{rate}/秒</translation>
    </message>
    <message>
        <source>{reason}</source>
        <translation>{reason}</translation>
    </message>
    <message>
        <source>{reason} Add more rows.</source>
        <translation>{reason}请添加更多数据行。</translation>
    </message>
    <message>
        <source>{reason} Hold out {percent}% or more.</source>
        <translation>{reason}请留出 {percent}% 或更多。</translation>
    </message>
    <message>
        <source>{reason} {other}</source>
        <translation>{reason} {other}</translation>
    </message>
    <message>
        <source>{seconds} s</source>
        <translation>{seconds} 秒</translation>
    </message>
    <message>
        <source>{setting}: no module with an adapter is called {pattern}. Those with one are {known}.</source>
        <translation>{setting}：没有名为 {pattern} 且带适配器的模块。带适配器的模块有：{known}。</translation>
    </message>
    <message>
        <source>{setting}: {name} fits both {first} and {second}. Leave one of them out.</source>
        <translation>{setting}：{name} 同时符合 {first} 和 {second}。去掉其中一个即可。</translation>
    </message>
    <message>
        <source>{setting}: {value} is not between {least} and {most}.</source>
        <translation>{setting}：{value} 不在 {least} 与 {most} 之间。</translation>
    </message>
    <message>
        <source>{source}: models of the architecture {architecture} can&apos;t be imported from GGUF files.</source>
        <translation>{source}：无法从 GGUF 文件导入 {architecture} 架构的模型。</translation>
    </message>
    <message>
        <source>{source}: nothing is missing from the file, but transformers can&apos;t read this {architecture} model from it: {error}</source>
        <translation>{source}：文件是完整的，但 transformers 无法从中读取这个 {architecture} 模型：{error}</translation>
    </message>
    <message>
        <source>{source}: the column &quot;{name}&quot; holds messages as Python writes them. Save them as JSON, in Python with json.dumps.</source>
        <translation>{source}：“{name}”列中的消息是 Python 的写法。请存为 JSON，在 Python 中用 json.dumps。</translation>
    </message>
    <message>
        <source>{source}: the columns of the sheet &quot;{sheet}&quot; are not recognized. The workbook has other sheets, and on the command line --sheet names the one to read: {names}.</source>
        <translation>{source}：无法识别工作表“{sheet}”的列。工作簿中还有其他工作表，在命令行中可用 --sheet 指定要读取的工作表：{names}。</translation>
    </message>
    <message>
        <source>{source}: the names of the columns don&apos;t tell which one is the problem, which holds the steps and which their labels. The columns are {found}.</source>
        <translation>{source}：从列名看不出哪一列是题目，哪一列是步骤，哪一列是步骤的标签。现有的列：{found}。</translation>
    </message>
    <message>
        <source>{source}: the names of the columns don&apos;t tell which one is the text and which the label. The columns are {found}.</source>
        <translation>{source}：从列名看不出哪一列是文本，哪一列是标签。现有的列：{found}。</translation>
    </message>
    <message>
        <source>{source}: the row of column names looks like data: {found}. Add a row above it that names the columns, such as question and answer.</source>
        <translation>{source}：列名所在的行看起来是数据：{found}。请在它上面加一行写明各列的名称，例如 question 和 answer。</translation>
    </message>
    <message>
        <source>{source}: there is no column {names}. Its columns are: {found}.</source>
        <translation>{source}：没有这样的列：{names}。现有的列：{found}。</translation>
    </message>
    <message>
        <source>{source}: there is no column {names}. Its columns are: {found}. Did you mean {near}?</source>
        <translation>{source}：没有这样的列：{names}。现有的列：{found}。您是否想用 {near}？</translation>
    </message>
    <message>
        <source>{source}: this objective learns from solutions in steps with labels, and no two columns hold steps and their labels. The columns are {found}.</source>
        <translation>{source}：该训练目标需要带标签的解题步骤，但没有哪两列是步骤及其标签。现有的列：{found}。</translation>
    </message>
    <message>
        <source>{source}: this objective learns from texts with labels, and no two columns look like a text and its label. The columns are {found}.</source>
        <translation>{source}：该训练目标需要带标签的文本，但没有哪两列像是文本及其标签。现有的列：{found}。</translation>
    </message>
    <message>
        <source>{step}: {outcome}</source>
        <translation>{step}：{outcome}</translation>
    </message>
    <message>
        <source>{tasks} can&apos;t be run: {problem}.</source>
        <translation>无法运行 {tasks}：{problem}。</translation>
    </message>
    <message>
        <source>{tasks} gave no figure that can be compared.</source>
        <translation>{tasks} 没有给出可以比较的指标。</translation>
    </message>
    <message>
        <source>{tasks}: {problem}.</source>
        <translation>{tasks}：{problem}。</translation>
    </message>
    <message>
        <source>{teacher} can&apos;t teach {student}: {difference}.</source>
        <translation>{teacher} 不能作 {student} 的教师模型：{difference}。</translation>
    </message>
    <message>
        <source>{text} is not ROLE=COLUMN.</source>
        <translation>{text} 不是“角色=列名”的形式。</translation>
    </message>
    <message>
        <source>{text} is not a number</source>
        <translation>{text} 不是数字</translation>
    </message>
    <message>
        <source>{text} is not a number from 1 to {most}</source>
        <translation>{text} 不是 1 到 {most} 之间的整数</translation>
    </message>
    <message>
        <source>{text} is not a number of billions, such as 1.5</source>
        <translation>{text} 不是以十亿为单位的数字，例如 1.5</translation>
    </message>
    <message>
        <source>{text} is not valid text in UTF-8.</source>
        <translation>{text} 不是有效的 UTF-8 文本。</translation>
    </message>
    <message>
        <source>{time} for the steps, without loading, evaluation and saving</source>
        <translation>{time}（仅训练步，不含加载、评估和保存）</translation>
    </message>
    <message>
        <source>{time}, by the run &quot;{run}&quot; with the same model and method</source>
        <translation>{time}，依据使用相同模型和方法的训练“{run}”</translation>
    </message>
    <message>
        <source>{tokens:,} tokens, and nothing to learn in the first {limit:,}.</source>
        <translation>共 {tokens:,} 个词元，前 {limit:,} 个中没有可学习的内容。</translation>
    </message>
    <message>
        <source>{trained:,} training rows, {held_out:,} held out, {examples:,} examples in each epoch</source>
        <translation>训练 {trained:,} 行，留出 {held_out:,} 行，每轮 {examples:,} 个样本</translation>
    </message>
    <message>
        <source>{which} To save memory, set Frozen weights to NF4 or Int8: it is quantized while it loads.</source>
        <translation>{which}要节省显存，请把“冻结权重”设为 NF4 或 Int8：加载时会自动量化。</translation>
    </message>
    <message>
        <source>{who} was better in {better} of {num} votes (95% interval {low} to {high}).</source>
        <translation>{num} 票中有 {better} 票认为{who}更好（95% 区间 {low} 到 {high}）。</translation>
    </message>
    <message>
        <source>“Fits” compares a model with the total memory of this computer, {size}.</source>
        <translation>“适合”按这台电脑的内存总量（{size}）判断。</translation>
    </message>
    <message>
        <source>“Fits” compares a model with the total memory of {name}, {size}.</source>
        <translation>“适合”按 {name} 的显存总量（{size}）判断。</translation>
    </message>
    <message>
        <source>damaged</source>
        <translation>已损坏</translation>
    </message>
    <message>
        <source>Writing answers</source>
        <translation>正在生成回答</translation>
    </message>
    <message>
        <source>The answers written so far are kept. Continue with them later.</source>
        <translation>已生成的回答会保留，以后可以继续。</translation>
    </message>
    <message>
        <source>Reading the prompts</source>
        <translation>正在读取提示词</translation>
    </message>
    <message>
        <source>The copy is not saved.</source>
        <translation>副本不会保存。</translation>
    </message>
    <message>
        <source>The run that waits for it does not start.</source>
        <translation>等待它的运行不会开始。</translation>
    </message>
    <message>
        <source>Reading the first rows</source>
        <translation>正在读取前几行</translation>
    </message>
    <message>
        <source>The next check starts from the beginning.</source>
        <translation>下次检查会从头开始。</translation>
    </message>
    <message>
        <source>Checking the model</source>
        <translation>正在检查模型</translation>
    </message>
    <message>
        <source>What has been converted is deleted. The next import starts from the beginning.</source>
        <translation>已转换的内容会删除，下次导入会从头开始。</translation>
    </message>
    <message>
        <source>Evaluating</source>
        <translation>正在评估</translation>
    </message>
    <message>
        <source>What has been measured is lost. The next evaluation starts from the beginning.</source>
        <translation>已测得的结果会丢失，下次评估会从头开始。</translation>
    </message>
    <message>
        <source>Checking the export</source>
        <translation>正在检查导出</translation>
    </message>
    <message>
        <source>Exporting</source>
        <translation>正在导出</translation>
    </message>
    <message>
        <source>export the trained model of a run</source>
        <translation>导出某次运行训练好的模型</translation>
    </message>
    <message>
        <source>What has been written is deleted. The next export starts from the beginning.</source>
        <translation>已写出的内容会删除，下次导出会从头开始。</translation>
    </message>
    <message>
        <source>Searching the model hub</source>
        <translation>正在搜索模型站</translation>
    </message>
    <message>
        <source>Looking at a model of the hub</source>
        <translation>正在查看模型站的模型</translation>
    </message>
    <message>
        <source>Downloading a model</source>
        <translation>正在下载模型</translation>
    </message>
    <message>
        <source>What has arrived is kept. The download continues when Tunesmith opens again.</source>
        <translation>已下载的内容会保留，下次打开 Tunesmith 时继续下载。</translation>
    </message>
    <message>
        <source>Uploading to the model hub</source>
        <translation>正在上传到模型站</translation>
    </message>
    <message>
        <source>What has arrived at the hub need not be sent again. Start the upload again later.</source>
        <translation>已到达模型站的内容不必重新上传。稍后可再次开始上传。</translation>
    </message>
    <message>
        <source>What has been copied is deleted. The next import starts from the beginning.</source>
        <translation>已复制的内容会删除，下次导入会从头开始。</translation>
    </message>
    <message>
        <source>The next verification starts from the beginning.</source>
        <translation>下次校验会从头开始。</translation>
    </message>
    <message>
        <source>Matching answers</source>
        <translation>正在匹配回答</translation>
    </message>
    <message>
        <source>Writing questions</source>
        <translation>正在生成问答</translation>
    </message>
    <message>
        <source>The questions written so far are kept. Continue with them later.</source>
        <translation>已写出的问题会保留，之后可以继续。</translation>
    </message>
    <message>
        <source>Reading the documents</source>
        <translation>正在读取文档</translation>
    </message>
    <message>
        <source>Scoring answers</source>
        <translation>为回答评分</translation>
    </message>
    <message>
        <source>It continues where it left off next time.</source>
        <translation>下次会从中断处继续。</translation>
    </message>
    <message>
        <source>Looking for new words</source>
        <translation>正在查找新词</translation>
    </message>
    <message>
        <source>install lm-evaluation-harness for public tasks, after asking</source>
        <translation>询问后安装用于公开任务的 lm-evaluation-harness</translation>
    </message>
    <message>
        <source>Rollouts</source>
        <translation>采样回答</translation>
    </message>
    <message>
        <source>How chats become text. The model&apos;s own is right wherever it has one. For base models plain turns suit any; the others need the tokens of their family.</source>
        <translation>聊天如何变成文本。模型自带模板时，用自带的总是对的。对基础模型，普通轮次适用于任何模型；其他模板需要该系列的词元。</translation>
    </message>
    <message>
        <source>The model&apos;s own</source>
        <translation>模型自带</translation>
    </message>
    <message>
        <source>Plain turns</source>
        <translation>普通轮次</translation>
    </message>
    <message>
        <source>ChatML</source>
        <translation>ChatML</translation>
    </message>
    <message>
        <source>Llama 3</source>
        <translation>Llama 3</translation>
    </message>
    <message>
        <source>Gemma</source>
        <translation>Gemma</translation>
    </message>
    <message>
        <source>Mistral</source>
        <translation>Mistral</translation>
    </message>
    <message>
        <source>Phi-3</source>
        <translation>Phi-3</translation>
    </message>
    <message>
        <source>New words</source>
        <translation>新词</translation>
    </message>
    <message>
        <source>Words and markers, such as a technical term or &lt;|cite|&gt;, that become one token each. Each begins as the mean of the pieces it was written with before, and needs to occur often in the data to be learned.</source>
        <translation>术语等词语或 &lt;|cite|&gt; 这样的标记，每个都会成为一个词元。每个新词的初始值是它原来各个片段的平均值，需要在数据中经常出现才能学会。</translation>
    </message>
    <message>
        <source>Multiple choice</source>
        <translation>选择题</translation>
    </message>
    <message>
        <source>Preference pairs</source>
        <translation>偏好对</translation>
    </message>
    <message>
        <source>Tokens</source>
        <translation>词元</translation>
    </message>
    <message>
        <source>UTF-8</source>
        <translation>UTF-8</translation>
    </message>
    <message>
        <source>Unknown</source>
        <translation>未知</translation>
    </message>
    <message>
        <source>Unpack</source>
        <translation>解压</translation>
    </message>
    <message>
        <source>Update the subsystem (wsl --update), and remove gpuSupport=false from .wslconfig.</source>
        <translation>请更新子系统（wsl --update），并从 .wslconfig 中删除 gpuSupport=false。</translation>
    </message>
    <message>
        <source>Using {name} again</source>
        <translation>重新使用 {name}</translation>
    </message>
    <message>
        <source>Version {major}.{minor}.</source>
        <translation>版本 {major}.{minor}。</translation>
    </message>
    <message>
        <source>Virtualization is turned off in the firmware, or the Virtual Machine Platform is turned off in Windows.</source>
        <translation>固件中的虚拟化已关闭，或 Windows 的“虚拟机平台”已关闭。</translation>
    </message>
    <message>
        <source>WSL did not answer in time.</source>
        <translation>WSL 没有及时响应。</translation>
    </message>
    <message>
        <source>WSL is installed but does not work.</source>
        <translation>WSL 已安装，但无法使用。</translation>
    </message>
    <message>
        <source>What helps: {fix}</source>
        <translation>解决办法：{fix}</translation>
    </message>
    <message>
        <source>Windows allows 260 characters. Tunesmith&apos;s folders are short enough.</source>
        <translation>Windows 允许 260 个字符，Tunesmith 的文件夹路径足够短。</translation>
    </message>
    <message>
        <source>Windows allows long paths.</source>
        <translation>Windows 允许长路径。</translation>
    </message>
    <message>
        <source>Windows has only {left} left for programs. PyTorch needs 8 GiB to start.</source>
        <translation>Windows 只能再给程序分配 {left}，PyTorch 启动需要 8 GiB。</translation>
    </message>
    <message>
        <source>Windows refused a file of the subsystem because of its signature.</source>
        <translation>Windows 因签名问题拒绝了子系统的某个文件。</translation>
    </message>
    <message>
        <source>Windows-1252 (Western European)</source>
        <translation>Windows-1252（西欧）</translation>
    </message>
    <message>
        <source>Write the file with: tunesmith probe --json</source>
        <translation>请用以下命令生成该文件：tunesmith probe --json</translation>
    </message>
    <message>
        <source>A proxy or a certificate stops the connection</source>
        <translation>代理或证书阻断了连接</translation>
    </message>
    <message>
        <source>Choose another file.</source>
        <translation>请选择其他文件。</translation>
    </message>
    <message>
        <source>Put the messages of each chat into one row, or choose another file.</source>
        <translation>请把同一对话的消息放在一行，或选择其他文件。</translation>
    </message>
    <message>
        <source>Wrong packages: {count}. First: {line}.</source>
        <translation>不正确的包：{count} 个，首个：{line}。</translation>
    </message>
    <message>
        <source>a NUL byte. The file is damaged or not a text file</source>
        <translation>含有 NUL 字节，文件已损坏或不是文本文件</translation>
    </message>
    <message>
        <source>a colon is missing</source>
        <translation>缺少冒号</translation>
    </message>
    <message>
        <source>a comma follows the last value</source>
        <translation>最后一个值后面多了逗号</translation>
    </message>
    <message>
        <source>a comma or a closing bracket is missing</source>
        <translation>缺少逗号或右括号</translation>
    </message>
    <message>
        <source>a font</source>
        <translation>字体</translation>
    </message>
    <message>
        <source>a line break or a tab inside a text, which JSON writes as \n or \t</source>
        <translation>文本中有换行或制表符，JSON 中要写成 \n 或 \t</translation>
    </message>
    <message>
        <source>a name in double quotes is missing</source>
        <translation>缺少双引号括起的名称</translation>
    </message>
    <message>
        <source>a value is missing</source>
        <translation>缺少值</translation>
    </message>
    <message>
        <source>a whole number</source>
        <translation>整数</translation>
    </message>
    <message>
        <source>about {size}</source>
        <translation>约 {size}</translation>
    </message>
    <message>
        <source>intermediate results (activations)</source>
        <translation>中间结果（激活值）</translation>
    </message>
    <message>
        <source>adapter and optimizer</source>
        <translation>适配器和优化器</translation>
    </message>
    <message>
        <source>adapter: {path}</source>
        <translation>适配器：{path}</translation>
    </message>
    <message>
        <source>alias of the Windows Store</source>
        <translation>Windows 应用商店的别名</translation>
    </message>
    <message>
        <source>allowed</source>
        <translation>允许</translation>
    </message>
    <message>
        <source>also the base models</source>
        <translation>同时删除基础模型</translation>
    </message>
    <message>
        <source>also the long tests, and the others again on Python 3.12</source>
        <translation>同时运行耗时长的测试，其余测试再用 Python 3.12 运行一遍</translation>
    </message>
    <message>
        <source>also the runs, with checkpoints and adapters</source>
        <translation>同时删除运行，包括检查点和适配器</translation>
    </message>
    <message>
        <source>ambiguous option: %(option)s could match %(matches)s</source>
        <translation>选项不明确：%(option)s 可以是 %(matches)s</translation>
    </message>
    <message>
        <source>an object of texts</source>
        <translation>由文本组成的对象</translation>
    </message>
    <message>
        <source>argument %(argument_name)s: %(message)s</source>
        <translation>参数 %(argument_name)s：%(message)s</translation>
    </message>
    <message>
        <source>ask the model being trained</source>
        <translation>向正在训练的模型提问</translation>
    </message>
    <message>
        <source>base model</source>
        <translation>基础模型</translation>
    </message>
    <message>
        <source>base models</source>
        <translation>基础模型</translation>
    </message>
    <message>
        <source>belongs to the operating system</source>
        <translation>属于操作系统</translation>
    </message>
    <message>
        <source>bitsandbytes has no library for CUDA {major}.</source>
        <translation>bitsandbytes 没有适用于 CUDA {major} 的库。</translation>
    </message>
    <message>
        <source>bitsandbytes is not installed.</source>
        <translation>bitsandbytes 未安装。</translation>
    </message>
    <message>
        <source>brackets are nested too deeply</source>
        <translation>括号嵌套过深</translation>
    </message>
    <message>
        <source>build of PyTorch (default: chosen for the GPU)</source>
        <translation>PyTorch 版本（默认：按 GPU 选择）</translation>
    </message>
    <message>
        <source>build the training environment inside (tunesmith wsl install).</source>
        <translation>在其中构建训练环境（tunesmith wsl install）。</translation>
    </message>
    <message>
        <source>caches and downloads</source>
        <translation>缓存和下载文件</translation>
    </message>
    <message>
        <source>changed</source>
        <translation>已修改</translation>
    </message>
    <message>
        <source>check a spec and measure one real step</source>
        <translation>检查配置文件并实测一步</translation>
    </message>
    <message>
        <source>choice of the data folder</source>
        <translation>数据文件夹的选择</translation>
    </message>
    <message>
        <source>commands:
{listing}</source>
        <translation>命令：
{listing}</translation>
    </message>
    <message>
        <source>compare a program folder with its manifest</source>
        <translation>将程序文件夹与其清单比较</translation>
    </message>
    <message>
        <source>compared by size and time, --full reads every byte</source>
        <translation>按大小和时间比较，--full 会读取每个字节</translation>
    </message>
    <message>
        <source>complete</source>
        <translation>已齐全</translation>
    </message>
    <message>
        <source>compute capability {version}</source>
        <translation>计算能力 {version}</translation>
    </message>
    <message>
        <source>continue an ended run</source>
        <translation>继续一个已结束的运行</translation>
    </message>
    <message>
        <source>current</source>
        <translation>当前</translation>
    </message>
    <message>
        <source>data</source>
        <translation>数据</translation>
    </message>
    <message>
        <source>do not save</source>
        <translation>不保存</translation>
    </message>
    <message>
        <source>do the operation of a folder, see tunesmith_core.operations</source>
        <translation>执行一个文件夹里的操作，见 tunesmith_core.operations</translation>
    </message>
    <message>
        <source>done in {time}</source>
        <translation>完成，用时 {time}</translation>
    </message>
    <message>
        <source>embeddable package, which has no Python.h</source>
        <translation>嵌入式包，缺少 Python.h</translation>
    </message>
    <message>
        <source>environments</source>
        <translation>环境</translation>
    </message>
    <message>
        <source>environments of the first start</source>
        <translation>首次启动时的环境</translation>
    </message>
    <message>
        <source>evaluating</source>
        <translation>评估</translation>
    </message>
    <message>
        <source>evaluation loss</source>
        <translation>评估损失</translation>
    </message>
    <message>
        <source>evaluation loss: {before} before, {after} after</source>
        <translation>评估损失：训练前 {before}，训练后 {after}</translation>
    </message>
    <message>
        <source>every byte was read</source>
        <translation>已读取每个字节</translation>
    </message>
    <message>
        <source>expected at least one argument</source>
        <translation>至少需要一个参数</translation>
    </message>
    <message>
        <source>expected one argument</source>
        <translation>需要一个参数</translation>
    </message>
    <message>
        <source>facts about the computer that the log is from: a file of `tunesmith probe --json`, or this computer</source>
        <translation>日志所在电脑的信息：`tunesmith probe --json` 的输出文件；默认为这台电脑</translation>
    </message>
    <message>
        <source>failed</source>
        <translation>失败</translation>
    </message>
    <message>
        <source>fields in this row: {num_fields}, in the header: {num_header}.</source>
        <translation>此行有 {num_fields} 个字段，表头有 {num_header} 个。</translation>
    </message>
    <message>
        <source>file with error output, - for standard input</source>
        <translation>含错误输出的文件，- 表示标准输入</translation>
    </message>
    <message>
        <source>file with the settings of a run</source>
        <translation>运行的配置文件</translation>
    </message>
    <message>
        <source>files that a repair set aside</source>
        <translation>修复时移开的文件</translation>
    </message>
    <message>
        <source>flash-attn is installed. It must match PyTorch, CUDA and GPU exactly, and nothing here needs it.</source>
        <translation>已安装 flash-attn。它必须与 PyTorch、CUDA 和显卡完全匹配，而这里并不需要它。</translation>
    </message>
    <message>
        <source>folder</source>
        <translation>文件夹</translation>
    </message>
    <message>
        <source>follow a run in progress</source>
        <translation>跟踪正在进行的运行</translation>
    </message>
    <message>
        <source>for example proxy=http://proxy.example:8080</source>
        <translation>例如 proxy=http://proxy.example:8080</translation>
    </message>
    <message>
        <source>four hexadecimal digits are missing after \u</source>
        <translation>\u 后面缺少四位十六进制数字</translation>
    </message>
    <message>
        <source>free</source>
        <translation>可用</translation>
    </message>
    <message>
        <source>free-threaded build</source>
        <translation>自由线程版本</translation>
    </message>
    <message>
        <source>half a surrogate pair. The text is damaged</source>
        <translation>含有半个代理对，文本已损坏</translation>
    </message>
    <message>
        <source>incomplete</source>
        <translation>不完整</translation>
    </message>
    <message>
        <source>index of runs</source>
        <translation>运行索引</translation>
    </message>
    <message>
        <source>install and open the window (the default)</source>
        <translation>安装并打开窗口（默认）</translation>
    </message>
    <message>
        <source>install everything first, with this build of PyTorch</source>
        <translation>先用这个 PyTorch 版本安装全部内容</translation>
    </message>
    <message>
        <source>invalid %(type)s value: %(value)r</source>
        <translation>无效的 %(type)s 值：%(value)r</translation>
    </message>
    <message>
        <source>invalid choice: %(value)r (choose from %(choices)s)</source>
        <translation>无效的选项：%(value)r（可选 %(choices)s）</translation>
    </message>
    <message>
        <source>is in a folder that is synchronized with a cloud</source>
        <translation>位于与云端同步的文件夹中</translation>
    </message>
    <message>
        <source>is in the program&apos;s own folder, which an update replaces</source>
        <translation>位于程序自己的文件夹中，更新时会被替换</translation>
    </message>
    <message>
        <source>is missing. Choose a base model</source>
        <translation>未填写，请选择基础模型</translation>
    </message>
    <message>
        <source>is missing. Choose a data file</source>
        <translation>未填写，请选择数据文件</translation>
    </message>
    <message>
        <source>is not a section of this version</source>
        <translation>不是此版本的配置节</translation>
    </message>
    <message>
        <source>is on a network drive</source>
        <translation>位于网络驱动器上</translation>
    </message>
    <message>
        <source>is on a removable drive</source>
        <translation>位于可移动驱动器上</translation>
    </message>
    <message>
        <source>it can&apos;t be used</source>
        <translation>无法使用</translation>
    </message>
    <message>
        <source>it is missing</source>
        <translation>未安装</translation>
    </message>
    <message>
        <source>its path contains letters other than A to Z</source>
        <translation>其路径含有英文以外的字符</translation>
    </message>
    <message>
        <source>its path contains spaces</source>
        <translation>其路径含有空格</translation>
    </message>
    <message>
        <source>its path is longer than {limit} characters</source>
        <translation>其路径超过 {limit} 个字符</translation>
    </message>
    <message>
        <source>language of the answer (default: the system&apos;s)</source>
        <translation>回答所用的语言（默认：系统语言）</translation>
    </message>
    <message>
        <source>last checkpoint</source>
        <translation>最近的检查点</translation>
    </message>
    <message>
        <source>libraries</source>
        <translation>程序库</translation>
    </message>
    <message>
        <source>line {line}, column {column}: not valid JSON: {msg}</source>
        <translation>第 {line} 行第 {column} 列不是有效的 JSON：{msg}</translation>
    </message>
    <message>
        <source>line {line}, column {column}: {msg}</source>
        <translation>第 {line} 行第 {column} 列：{msg}</translation>
    </message>
    <message>
        <source>list all runs</source>
        <translation>列出全部运行</translation>
    </message>
    <message>
        <source>list the presets</source>
        <translation>列出预设</translation>
    </message>
    <message>
        <source>locks</source>
        <translation>锁文件</translation>
    </message>
    <message>
        <source>predictions (logits)</source>
        <translation>预测结果（logits）</translation>
    </message>
    <message>
        <source>logs</source>
        <translation>日志</translation>
    </message>
    <message>
        <source>Choose the instruct version of the model, another chat template in the settings, or prompt/completion data.</source>
        <translation>请选择该模型的指令版本、在设置中选择其他对话模板，或使用提示词/补全数据。</translation>
    </message>
    <message>
        <source>The model is not on this computer yet</source>
        <translation>这台电脑上还没有该模型</translation>
    </message>
    <message>
        <source>A run names a model by its hub id. It is downloaded before the run, so that training needs no network.</source>
        <translation>运行以模型站 ID 指定模型。模型会在运行前下载，因此训练不需要网络。</translation>
    </message>
    <message>
        <source>Download the model first.</source>
        <translation>请先下载模型。</translation>
    </message>
    <message>
        <source>The access token can&apos;t be kept</source>
        <translation>无法保存访问令牌</translation>
    </message>
    <message>
        <source>This system has no keyring, or it is locked. Tunesmith writes no token into a file.</source>
        <translation>此系统没有密钥环，或密钥环已锁定。Tunesmith 不会把令牌写入文件。</translation>
    </message>
    <message>
        <source>Unlock or install the keyring of your system, or start Tunesmith with the variable HF_TOKEN.</source>
        <translation>请解锁或安装系统的密钥环，或设置变量 HF_TOKEN 后启动 Tunesmith。</translation>
    </message>
    <message>
        <source>Runs need this model</source>
        <translation>有运行需要该模型</translation>
    </message>
    <message>
        <source>Without its base model, a run can&apos;t be resumed, asked or exported.</source>
        <translation>没有基础模型，运行无法继续、提问或导出。</translation>
    </message>
    <message>
        <source>Keep it, or add --force. It goes to the trash and can be restored.</source>
        <translation>请保留它，或添加 --force。它会移到回收站，可以恢复。</translation>
    </message>
    <message>
        <source>The hub has no such model</source>
        <translation>模型站没有该模型</translation>
    </message>
    <message>
        <source>There is no repository of this name, or no such revision of it, or it is private.</source>
        <translation>没有该名称的仓库，或没有该修订版本，或仓库是私有的。</translation>
    </message>
    <message>
        <source>Check the name. For a private model, enter an access token of an account that may see it.</source>
        <translation>请检查名称。对于私有模型，请输入有权访问的账户的访问令牌。</translation>
    </message>
    <message>
        <source>A model to train has its weights in safetensors files beside a config.json.</source>
        <translation>可训练的模型在 config.json 旁边有 safetensors 权重文件。</translation>
    </message>
    <message>
        <source>Choose another repository.</source>
        <translation>请选择其他仓库。</translation>
    </message>
    <message>
        <source>The hub refused the upload</source>
        <translation>模型站拒绝上传</translation>
    </message>
    <message>
        <source>There is no access token, or its account may not write into this repository.</source>
        <translation>没有访问令牌，或其账户无权写入此仓库。</translation>
    </message>
    <message>
        <source>Enter an access token with the right to write, and upload to your own account or an organization of yours.</source>
        <translation>请填写有写入权限的访问令牌，并上传到自己的账户或所属组织。</translation>
    </message>
    <message>
        <source>The repository exists already</source>
        <translation>仓库已存在</translation>
    </message>
    <message>
        <source>There is a repository of this name that holds something else. Nothing in it was changed.</source>
        <translation>已有同名仓库，其中是别的内容。未作任何更改。</translation>
    </message>
    <message>
        <source>Choose another name.</source>
        <translation>请换一个名称。</translation>
    </message>
    <message>
        <source>The model hub refuses more requests now</source>
        <translation>模型站暂时拒绝更多请求</translation>
    </message>
    <message>
        <source>The hub limits how much one computer may ask, or has a fault of its own.</source>
        <translation>模型站限制每台电脑的请求数量，或自身出现故障。</translation>
    </message>
    <message>
        <source>Try again later. What is downloaded already is kept.</source>
        <translation>请稍后重试。已下载的内容会保留。</translation>
    </message>
    <message>
        <source>The model hub gave a wrong answer</source>
        <translation>模型站的应答有误</translation>
    </message>
    <message>
        <source>What arrived is not what a hub says: a mirror, a proxy or a log-in page may have answered instead.</source>
        <translation>收到的内容不是模型站的应答：可能是镜像、代理或登录页面作出了应答。</translation>
    </message>
    <message>
        <source>Check the address of the hub and the proxy, then try again. What is downloaded already is kept.</source>
        <translation>请检查模型站的地址和代理，然后重试。已下载的内容会保留。</translation>
    </message>
    <message>
        <source>A downloaded file is damaged</source>
        <translation>下载的文件已损坏</translation>
    </message>
    <message>
        <source>What arrived differs from the hash that the hub names, so it was deleted.</source>
        <translation>收到的内容与模型站给出的哈希值不符，因此已删除。</translation>
    </message>
    <message>
        <source>Try again. If it happens again, a mirror or a proxy changes the file: choose another.</source>
        <translation>请重试。如果再次发生，说明镜像或代理更改了文件：请换一个。</translation>
    </message>
    <message>
        <source>The model can&apos;t be verified</source>
        <translation>无法校验该模型</translation>
    </message>
    <message>
        <source>It was not downloaded by Tunesmith, so nothing says what its files should hold.</source>
        <translation>该模型不是由 Tunesmith 下载的，因此没有可供对照的文件记录。</translation>
    </message>
    <message>
        <source>Download the model again to get one that can be verified.</source>
        <translation>重新下载该模型即可进行校验。</translation>
    </message>
    <message>
        <source>The model is being downloaded already</source>
        <translation>该模型已在下载中</translation>
    </message>
    <message>
        <source>Another window or command downloads the same model.</source>
        <translation>另一个窗口或命令正在下载同一模型。</translation>
    </message>
    <message>
        <source>The files are mixed by weight</source>
        <translation>各文件按权重混合</translation>
    </message>
    <message>
        <source>With weights, an epoch does not have every row once: some repeat, and others are left out of it.</source>
        <translation>设了权重后，一轮中并非每行恰好用一次：有的行会重复，有的行这一轮用不到。</translation>
    </message>
    <message>
        <source>Nothing has to be done. To take every row once, set the weights to 0.</source>
        <translation>无需处理。想让每行恰好用一次，请把权重设为 0。</translation>
    </message>
    <message>
        <source>Some rows of a file are not used</source>
        <translation>文件中有些行没有使用</translation>
    </message>
    <message>
        <source>A file has more rows than its setting allows. The seed chooses which are used.</source>
        <translation>文件的行数超过了设置的上限。使用哪些行由随机种子决定。</translation>
    </message>
    <message>
        <source>Nothing has to be done. To use all rows, leave the setting empty.</source>
        <translation>无需处理。想使用全部行，请把该设置留空。</translation>
    </message>
    <message>
        <source>The weight of a file can&apos;t be met</source>
        <translation>无法满足文件的权重</translation>
    </message>
    <message>
        <source>A file with a weight must have rows to train on, and enough weight for one of them.</source>
        <translation>设了权重的文件必须有可训练的行，并且权重至少够分到一行。</translation>
    </message>
    <message>
        <source>Change the weight, take the file out, or hold out fewer rows.</source>
        <translation>修改权重、移除该文件，或少留出一些行。</translation>
    </message>
    <message>
        <source>The groups of the held-out rows</source>
        <translation>留出数据的分组</translation>
    </message>
    <message>
        <source>Rows of a group are all trained or all held out, so the split needs a column that every row has, and at least two groups.</source>
        <translation>同一组的行要么全部训练，要么全部留出，因此需要每行都有的一列，并且至少有两组。</translation>
    </message>
    <message>
        <source>Choose another group column, or none.</source>
        <translation>换一个分组列，或不分组。</translation>
    </message>
    <message>
        <source>The model lacks tokens of the chat template</source>
        <translation>模型缺少对话模板的词元</translation>
    </message>
    <message>
        <source>The chosen chat template is written with tokens that the model&apos;s vocabulary does not have.</source>
        <translation>所选对话模板使用了该模型词表中没有的词元。</translation>
    </message>
    <message>
        <source>Choose the chat template &quot;plain&quot;, which any model takes, or a model of that family.</source>
        <translation>请选择任何模型都适用的对话模板“plain”，或选择该系列的模型。</translation>
    </message>
    <message>
        <source>Lines above the heading are not read</source>
        <translation>未读取标题行上方的行</translation>
    </message>
    <message>
        <source>Above the row that names the columns, the sheet has lines of a single cell, which are taken for a title.</source>
        <translation>在列名所在行的上方，工作表有只含一个单元格的行，这些行被视为标题。</translation>
    </message>
    <message>
        <source>Delete these lines, or put the row that names the columns above them if they are data.</source>
        <translation>请删除这些行；如果它们是数据，请把列名所在行移到它们上方。</translation>
    </message>
    <message>
        <source>Percentages and amounts are read as bare numbers</source>
        <translation>百分比和金额读作普通数字</translation>
    </message>
    <message>
        <source>Save the workbook as .xlsx to keep percentages and currencies as they are shown.</source>
        <translation>将工作簿另存为 .xlsx，即可按显示的样子保留百分比和货币。</translation>
    </message>
    <message>
        <source>Texts are split at the context length</source>
        <translation>文本按上下文长度拆分</translation>
    </message>
    <message>
        <source>Some texts are longer than the context length. They became several examples, and nothing of them is lost.</source>
        <translation>有些文本超过上下文长度，已拆分为多个样本，内容没有丢失。</translation>
    </message>
    <message>
        <source>Raise the context length to keep more of a text together.</source>
        <translation>提高上下文长度，可以让每个样本包含更多文本。</translation>
    </message>
    <message>
        <source>A model wrote rows that nobody has reviewed</source>
        <translation>有模型生成但尚未审核的行</translation>
    </message>
    <message>
        <source>Questions and answers of a model can be wrong, and training on them teaches what is wrong.</source>
        <translation>模型写的问题和答案可能有错，用它们训练会学到错误的内容。</translation>
    </message>
    <message>
        <source>Review them on the Data page: keep, edit or discard each row.</source>
        <translation>请在“数据”页逐行审核：保留、编辑或丢弃。</translation>
    </message>
    <message>
        <source>The model wrote no questions</source>
        <translation>模型没有写出问题</translation>
    </message>
    <message>
        <source>Small models often don&apos;t keep to the form in which questions and answers are asked for.</source>
        <translation>小模型常常不按要求的格式书写问题和答案。</translation>
    </message>
    <message>
        <source>Choose a larger instruct model, or ask for fewer questions per passage.</source>
        <translation>请选择更大的指令模型，或减少每段的问题数。</translation>
    </message>
    <message>
        <source>Hardly anything would be learned</source>
        <translation>几乎学不到任何内容</translation>
    </message>
    <message>
        <source>Less than 1% of the tokens counts for the loss: the answers are very short or mostly cut off.</source>
        <translation>计入损失的词元不到 1%：回答非常短，或者大部分被截断。</translation>
    </message>
    <message>
        <source>Check which column holds the answers, and raise the context length.</source>
        <translation>请检查哪一列是回答，并增大上下文长度。</translation>
    </message>
    <message>
        <source>The library already has a data set of this name</source>
        <translation>数据集库中已有同名的数据集</translation>
    </message>
    <message>
        <source>It keeps other files under this name.</source>
        <translation>该名称下保存的是其他文件。</translation>
    </message>
    <message>
        <source>Choose another name, or replace the files of that data set.</source>
        <translation>请换一个名称，或替换该数据集的文件。</translation>
    </message>
    <message>
        <source>Several runs have this name</source>
        <translation>有多个运行使用这个名称</translation>
    </message>
    <message>
        <source>A name alone does not tell which run is meant.</source>
        <translation>仅凭名称无法确定是哪个运行。</translation>
    </message>
    <message>
        <source>Use the id of one of them instead.</source>
        <translation>请改用其中一个运行的 ID。</translation>
    </message>
    <message>
        <source>The checkpoint no longer fits the run</source>
        <translation>检查点与本次运行已不匹配</translation>
    </message>
    <message>
        <source>Settings or files that the trained weights belong to were changed since the checkpoint was saved.</source>
        <translation>保存检查点之后，训练好的权重所依赖的设置或文件有改动。</translation>
    </message>
    <message>
        <source>The run has no checkpoint of this step</source>
        <translation>该运行没有这一步的检查点</translation>
    </message>
    <message>
        <source>A run keeps its newest checkpoints only.</source>
        <translation>运行只保留最新的检查点。</translation>
    </message>
    <message>
        <source>Choose a step that the run has.</source>
        <translation>请选择该运行保留的步数。</translation>
    </message>
    <message>
        <source>The export is not equal to the trained model</source>
        <translation>导出结果与训练后的模型不一致</translation>
    </message>
    <message>
        <source>The same prompts were put to both, and their tokens or probabilities differ.</source>
        <translation>向两者提出相同的提示词后，得到的词元或概率不同。</translation>
    </message>
    <message>
        <source>Another program did not take the export</source>
        <translation>另一个程序没有接收导出结果</translation>
    </message>
    <message>
        <source>The program is not installed, is not running, or refuses the file.</source>
        <translation>该程序未安装、未运行，或拒绝了该文件。</translation>
    </message>
    <message>
        <source>Start the other program, then export again. What is exported already is not written again.</source>
        <translation>请启动该程序，然后重新导出。已导出的内容不会重复写入。</translation>
    </message>
    <message>
        <source>Not enough memory</source>
        <translation>内存不足</translation>
    </message>
    <message>
        <source>The model and the batch need more memory than is free, or than this process may use.</source>
        <translation>模型和批次所需的内存超出了空闲内存，或超出了该进程可用的上限。</translation>
    </message>
    <message>
        <source>Settings, data, libraries or the device differ from those of the checkpoint.</source>
        <translation>设置、数据、库或设备与保存检查点时不同。</translation>
    </message>
    <message>
        <source>Continue. If you need exactly the same numbers, stop without saving, undo the named changes and resume.</source>
        <translation>可以继续运行。如需完全一致的数值，请不保存停止，撤销所列改动后再继续。</translation>
    </message>
    <message>
        <source>Raise the context length</source>
        <translation>增大上下文长度</translation>
    </message>
    <message>
        <source>Read as Big5 (Traditional Chinese)</source>
        <translation>按 Big5（繁体中文）读取</translation>
    </message>
    <message>
        <source>Read as Shift JIS (Japanese)</source>
        <translation>按 Shift JIS（日文）读取</translation>
    </message>
    <message>
        <source>Read as EUC-JP (Japanese)</source>
        <translation>按 EUC-JP（日文）读取</translation>
    </message>
    <message>
        <source>Read as EUC-KR (Korean)</source>
        <translation>按 EUC-KR（韩文）读取</translation>
    </message>
    <message>
        <source>Read as Windows-1251 (Cyrillic)</source>
        <translation>按 Windows-1251（西里尔文）读取</translation>
    </message>
    <message>
        <source>  {line}</source>
        <translation>  {line}</translation>
    </message>
    <message>
        <source>, </source>
        <translation>、</translation>
    </message>
    <message>
        <source>--- {place}</source>
        <translation>--- {place}</translation>
    </message>
    <message>
        <source>--checkpoint and --against name the same weights.</source>
        <translation>--checkpoint 和 --against 指定了相同的权重。</translation>
    </message>
    <message>
        <source>--encoding, --format, --columns and --sheet say how a file of rows is read.</source>
        <translation>--encoding、--format、--columns 和 --sheet 说明如何读取数据文件。</translation>
    </message>
    <message>
        <source>--rows: {rows} is less than 1.</source>
        <translation>--rows：{rows} 小于 1。</translation>
    </message>
    <message>
        <source>0 always takes the most likely token, 0.7 varies, above 1 answers get wild</source>
        <translation>0 总是选择最可能的词元，0.7 会有变化，大于 1 时回答会很发散</translation>
    </message>
    <message>
        <source>1: A is better, 2: B is better, 3: both the same, 4: both bad</source>
        <translation>1：A 更好，2：B 更好，3：两个一样，4：都不好</translation>
    </message>
    <message>
        <source>A chat has no place for these columns, so they were left out of as many rows: {columns}.</source>
        <translation>对话格式无法容纳以下列，因此在相应数量的数据行中略去了它们：{columns}。</translation>
    </message>
    <message>
        <source>A: {a}. B: {b}.</source>
        <translation>A：{a}。B：{b}。</translation>
    </message>
    <message>
        <source>Access</source>
        <translation>访问</translation>
    </message>
    <message>
        <source>Add --format gguf.</source>
        <translation>请加上 --format gguf。</translation>
    </message>
    <message>
        <source>All layers ran on Tunesmith&apos;s fast path.</source>
        <translation>所有层都使用 Tunesmith 的快速路径。</translation>
    </message>
    <message>
        <source>All {number} files are as the hub has them.</source>
        <translation>全部 {number} 个文件与模型站一致。</translation>
    </message>
    <message>
        <source>Another process is downloading {name}.</source>
        <translation>另一个进程正在下载 {name}。</translation>
    </message>
    <message>
        <source>Another process is writing {path}.</source>
        <translation>另一个进程正在写入 {path}。</translation>
    </message>
    <message>
        <source>Answers that name none of the options</source>
        <translation>答案不是任何选项</translation>
    </message>
    <message>
        <source>Arabic</source>
        <translation>阿拉伯语</translation>
    </message>
    <message>
        <source>Ask for fewer questions, or choose a model with a longer context.</source>
        <translation>请减少问题数，或选择上下文更长的模型。</translation>
    </message>
    <message>
        <source>Asking the model hub. Ctrl+C cancels.</source>
        <translation>正在询问模型站。按 Ctrl+C 可取消。</translation>
    </message>
    <message>
        <source>Bengali</source>
        <translation>孟加拉语</translation>
    </message>
    <message>
        <source>Blind votes</source>
        <translation>盲测投票</translation>
    </message>
    <message>
        <source>Both are the weights of step {step}. Compare with another checkpoint.</source>
        <translation>两边都是第 {step} 步的权重。请换一个检查点来比较。</translation>
    </message>
    <message>
        <source>Catalan</source>
        <translation>加泰罗尼亚语</translation>
    </message>
    <message>
        <source>Chat template</source>
        <translation>对话模板</translation>
    </message>
    <message>
        <source>Check config.json and the weights of the base model, or set the number format to float32.</source>
        <translation>请检查基础模型的 config.json 和权重，或把数值格式设为 float32。</translation>
    </message>
    <message>
        <source>Check the numbers in config.json, choose float32 as number format, or download the model again.</source>
        <translation>请检查 config.json 中的数值，将数值格式设为 float32，或重新下载模型。</translation>
    </message>
    <message>
        <source>Chinese</source>
        <translation>中文</translation>
    </message>
    <message>
        <source>Choose Hugging Face as the model hub in the settings.</source>
        <translation>请在设置中将模型站改为 Hugging Face。</translation>
    </message>
    <message>
        <source>Choose a model with another chat template.</source>
        <translation>请选择使用其他对话模板的模型。</translation>
    </message>
    <message>
        <source>Choose a text, Markdown, HTML, Word or PDF file, or a folder or ZIP archive of such files.</source>
        <translation>请选择文本、Markdown、HTML、Word 或 PDF 文件，或包含这类文件的文件夹或 ZIP 压缩包。</translation>
    </message>
    <message>
        <source>Choose an instruct model. A base model can&apos;t follow the request to write questions.</source>
        <translation>请选择指令模型。基座模型无法按要求生成问答。</translation>
    </message>
    <message>
        <source>Choose another name or folder.</source>
        <translation>请选择其他名称或文件夹。</translation>
    </message>
    <message>
        <source>Choose another name, or add --overwrite to replace the file.</source>
        <translation>请选择其他名称，或加上 --overwrite 替换该文件。</translation>
    </message>
    <message>
        <source>Choose another name, or add --public.</source>
        <translation>请换一个名称，或加上 --public。</translation>
    </message>
    <message>
        <source>Choose another name, or replace the file.</source>
        <translation>请换一个名称，或替换该文件。</translation>
    </message>
    <message>
        <source>Choose another name, such as &quot;{free}&quot;, or add --overwrite to replace it.</source>
        <translation>请换一个名称，例如“{free}”，或加上 --overwrite 替换它。</translation>
    </message>
    <message>
        <source>Choose the base model that it was trained on.</source>
        <translation>请选择其训练所用的基础模型。</translation>
    </message>
    <message>
        <source>Choose the model for which the data was made into tokens.</source>
        <translation>请选择这些词元所对应的模型。</translation>
    </message>
    <message>
        <source>Choose the repository that they were made from. Its weights are in safetensors files.</source>
        <translation>请选择生成它们的原仓库，其权重为 safetensors 文件。</translation>
    </message>
    <message>
        <source>Connect to the internet, or use --harness-tasks FOLDER with a task whose data is on this computer.</source>
        <translation>请连接网络，或用 --harness-tasks 文件夹 指定数据在本机的任务。</translation>
    </message>
    <message>
        <source>Context</source>
        <translation>上下文</translation>
    </message>
    <message>
        <source>Continue with the same documents and settings, or choose another name.</source>
        <translation>请用相同的文档和设置继续，或换一个名称。</translation>
    </message>
    <message>
        <source>Correct or delete the row, or save as JSON Lines.</source>
        <translation>请更正或删除该行，或保存为 JSON Lines。</translation>
    </message>
    <message>
        <source>Create the folder, or choose another one.</source>
        <translation>请创建该文件夹，或选择其他文件夹。</translation>
    </message>
    <message>
        <source>Czech</source>
        <translation>捷克语</translation>
    </message>
    <message>
        <source>Danish</source>
        <translation>丹麦语</translation>
    </message>
    <message>
        <source>Deleted what was downloaded of {id}.</source>
        <translation>已删除 {id} 的已下载内容。</translation>
    </message>
    <message>
        <source>Downloads</source>
        <translation>下载次数</translation>
    </message>
    <message>
        <source>Dutch</source>
        <translation>荷兰语</translation>
    </message>
    <message>
        <source>English</source>
        <translation>英语</translation>
    </message>
    <message>
        <source>Evaluation losses are measured on other rows, so earlier ones can&apos;t be compared with them.</source>
        <translation>评估损失改用其他行计算，不能与之前的结果比较。</translation>
    </message>
    <message>
        <source>Examples in an epoch: {num:,}.</source>
        <translation>每轮样本数：{num:,}。</translation>
    </message>
    <message>
        <source>Export an earlier checkpoint, or the adapter alone.</source>
        <translation>请导出更早的检查点，或只导出适配器。</translation>
    </message>
    <message>
        <source>Export the merged model instead.</source>
        <translation>请改为导出合并后的模型。</translation>
    </message>
    <message>
        <source>File</source>
        <translation>文件</translation>
    </message>
    <message>
        <source>Files that can&apos;t be read</source>
        <translation>无法读取的文件</translation>
    </message>
    <message>
        <source>Finnish</source>
        <translation>芬兰语</translation>
    </message>
    <message>
        <source>Free some space, or choose a folder on another drive.</source>
        <translation>请释放一些空间，或选择其他磁盘上的文件夹。</translation>
    </message>
    <message>
        <source>French</source>
        <translation>法语</translation>
    </message>
    <message>
        <source>From here on, another share of adapter inputs is ignored at random.</source>
        <translation>此后随机忽略的适配器输入比例有变化。</translation>
    </message>
    <message>
        <source>From here on, long rows are cut at another length or skipped.</source>
        <translation>此后过长的行会按新的长度截断或跳过。</translation>
    </message>
    <message>
        <source>From here on, long rows are cut or skipped differently.</source>
        <translation>此后过长的行改用另一种方式截断或跳过。</translation>
    </message>
    <message>
        <source>From here on, other tokens count for the loss, so earlier losses can&apos;t be compared.</source>
        <translation>此后计入损失的词元不同，不能与之前的损失比较。</translation>
    </message>
    <message>
        <source>From here on, rows become other tokens.</source>
        <translation>此后各行会转换成不同的词元。</translation>
    </message>
    <message>
        <source>Further files with a weight: {num:,}.</source>
        <translation>其他有权重的文件：{num:,} 个。</translation>
    </message>
    <message>
        <source>German</source>
        <translation>德语</translation>
    </message>
    <message>
        <source>Greek</source>
        <translation>希腊语</translation>
    </message>
    <message>
        <source>Hebrew</source>
        <translation>希伯来语</translation>
    </message>
    <message>
        <source>Held out: {num:,} of {total:,} rows, because documents stay whole.</source>
        <translation>留出：{total:,} 行中的 {num:,} 行，因为每篇文档保持完整。</translation>
    </message>
    <message>
        <source>Held out: {num:,} of {total:,} rows, because the groups of the column &quot;{column}&quot; stay whole.</source>
        <translation>共 {total:,} 行，留出 {num:,} 行，因为“{column}”列的各组保持完整。</translation>
    </message>
    <message>
        <source>Held-out rows: {held_out} of {num_rows}. With fewer than {least}, nobody can tell whether the model improved.</source>
        <translation>{num_rows} 行中留出 {held_out} 行。少于 {least} 行时，无法判断模型是否有提升。</translation>
    </message>
    <message>
        <source>Hindi</source>
        <translation>印地语</translation>
    </message>
    <message>
        <source>Hold out {percent}%</source>
        <translation>留出 {percent}%</translation>
    </message>
    <message>
        <source>Hungarian</source>
        <translation>匈牙利语</translation>
    </message>
    <message>
        <source>Indonesian</source>
        <translation>印度尼西亚语</translation>
    </message>
    <message>
        <source>Install Ollama, then export again.</source>
        <translation>请安装 Ollama，然后重新导出。</translation>
    </message>
    <message>
        <source>Install it?</source>
        <translation>要安装吗？</translation>
    </message>
    <message>
        <source>Install lm-evaluation-harness, which `tunesmith evaluate RUN --harness TASKS` runs.

Its packages get a folder of their own. How much is downloaded is said first, and nothing is done without a yes.</source>
        <translation>安装 lm-evaluation-harness，供 `tunesmith evaluate RUN --harness TASKS` 使用。

它的软件包放在单独的文件夹中。会先说明下载大小，未经同意不会做任何事。</translation>
    </message>
    <message>
        <source>It is stored in {keyring}.</source>
        <translation>已保存在 {keyring} 中。</translation>
    </message>
    <message>
        <source>Italian</source>
        <translation>意大利语</translation>
    </message>
    <message>
        <source>Its control group may use {size:.1f} GiB of memory.</source>
        <translation>它所在的控制组（cgroup）最多可使用 {size:.1f} GiB 内存。</translation>
    </message>
    <message>
        <source>Japanese</source>
        <translation>日语</translation>
    </message>
    <message>
        <source>Kept by</source>
        <translation>所属程序</translation>
    </message>
    <message>
        <source>Korean</source>
        <translation>韩语</translation>
    </message>
    <message>
        <source>LM Studio was not found on this computer.</source>
        <translation>在这台电脑上没有找到 LM Studio。</translation>
    </message>
    <message>
        <source>Languages: {languages}</source>
        <translation>语言：{languages}</translation>
    </message>
    <message>
        <source>Latin</source>
        <translation>拉丁语</translation>
    </message>
    <message>
        <source>Layers on Tunesmith&apos;s fast path: {fused} of {layers}.</source>
        <translation>使用 Tunesmith 快速路径的层：{fused}/{layers}。</translation>
    </message>
    <message>
        <source>Layers with a part in plain PyTorch: {layers}. {note}</source>
        <translation>部分使用原生 PyTorch 的层：{layers}。{note}</translation>
    </message>
    <message>
        <source>LoRA</source>
        <translation>LoRA</translation>
    </message>
    <message>
        <source>Long rows that were not measured: {number:,}.</source>
        <translation>没有测量的长行：{number:,} 行。</translation>
    </message>
    <message>
        <source>Look at the rows: answers may not belong to their questions. If they do, lower the learning rate or train for more steps.</source>
        <translation>请查看数据行：答案可能与问题不对应。如果对应无误，请降低学习率或训练更多步。</translation>
    </message>
    <message>
        <source>Mix files of texts, or files of questions, answers and chats.</source>
        <translation>请只混合纯文本文件，或只混合问答和对话文件。</translation>
    </message>
    <message>
        <source>Models of type {kind} can&apos;t be exported as GGUF. These can: {known}.</source>
        <translation>{kind} 类型的模型无法导出为 GGUF。支持的类型：{known}。</translation>
    </message>
    <message>
        <source>Move adapter_config.json to another folder to train the model without the adapter, or choose a model into which the adapter was merged.</source>
        <translation>要在不带适配器的情况下训练该模型，请把 adapter_config.json 移到其他文件夹；或者选择已合并该适配器的模型。</translation>
    </message>
    <message>
        <source>Move it, then export again.</source>
        <translation>请把它移走，然后重新导出。</translation>
    </message>
    <message>
        <source>Multiple choice: the column {question} asks, and {answer} says which of {options} is right.</source>
        <translation>选择题：{question} 列是问题，{answer} 列说明 {options} 中哪一项正确。</translation>
    </message>
    <message>
        <source>Name a column that every row of the files has with --column.</source>
        <translation>请用 --column 指定文件中每一行都有的列。</translation>
    </message>
    <message>
        <source>Name tasks as lm-evaluation-harness lists them. --harness-tasks FOLDER adds tasks of your own.</source>
        <translation>请使用 lm-evaluation-harness 列出的任务名称。--harness-tasks 文件夹 可以添加自己的任务。</translation>
    </message>
    <message>
        <source>Name the columns, for example: --columns prompt=Question completion=Answer</source>
        <translation>请指定列，例如：--columns prompt=Question completion=Answer</translation>
    </message>
    <message>
        <source>Name the columns, for example: --columns {columns}</source>
        <translation>请指定各列，例如：--columns {columns}</translation>
    </message>
    <message>
        <source>Name the encoding of the file with --encoding.</source>
        <translation>请用 --encoding 指定文件的编码。</translation>
    </message>
    <message>
        <source>Name the file: --data FILE</source>
        <translation>请指定文件：--data FILE</translation>
    </message>
    <message>
        <source>No answer is right yet: the held-out loss fell from {before} to {after}, but none of {asked} held-out questions was answered rightly.</source>
        <translation>还没有一个回答是对的：留出损失从 {before} 降到 {after}，但 {asked} 个留出的问题一个也没有答对。</translation>
    </message>
    <message>
        <source>No row has an answer that could match {pattern}.</source>
        <translation>没有任何一行的回答可以与 {pattern} 匹配。</translation>
    </message>
    <message>
        <source>No vote found one of them better.</source>
        <translation>没有一票认为其中一个更好。</translation>
    </message>
    <message>
        <source>No votes yet.</source>
        <translation>还没有投票。</translation>
    </message>
    <message>
        <source>None: all operations ran in plain PyTorch. {reason}</source>
        <translation>无：所有运算都由原生 PyTorch 完成。{reason}</translation>
    </message>
    <message>
        <source>Norwegian</source>
        <translation>挪威语</translation>
    </message>
    <message>
        <source>Not an ordinary file</source>
        <translation>不是普通文件</translation>
    </message>
    <message>
        <source>Not counted: {same} the same, {bad} both bad.</source>
        <translation>未计入：{same} 票认为一样，{bad} 票认为都不好。</translation>
    </message>
    <message>
        <source>Not every row has the column &quot;{column}&quot;.</source>
        <translation>不是每一行都有“{column}”列。</translation>
    </message>
    <message>
        <source>Not used: {columns}.</source>
        <translation>未使用：{columns}。</translation>
    </message>
    <message>
        <source>Not whole yet: {id}, {done} of {total}</source>
        <translation>尚未完整：{id}，{done} / {total}</translation>
    </message>
    <message>
        <source>Nothing changed by more than chance.</source>
        <translation>没有超出偶然的变化。</translation>
    </message>
    <message>
        <source>Ollama and LM Studio take GGUF files, but the format is {format}.</source>
        <translation>Ollama 和 LM Studio 使用 GGUF 文件，但所选格式是 {format}。</translation>
    </message>
    <message>
        <source>Ollama can&apos;t use this chat template, so there is no Modelfile.</source>
        <translation>Ollama 无法使用此对话模板，因此没有生成 Modelfile。</translation>
    </message>
    <message>
        <source>Ollama did not create {name}: {reason}</source>
        <translation>Ollama 没有创建 {name}：{reason}</translation>
    </message>
    <message>
        <source>Ollama was not found on this computer.</source>
        <translation>在这台电脑上没有找到 Ollama。</translation>
    </message>
    <message>
        <source>On the hub, private: {url}</source>
        <translation>在模型站（私有）：{url}</translation>
    </message>
    <message>
        <source>On the hub, public: {url}</source>
        <translation>在模型站（公开）：{url}</translation>
    </message>
    <message>
        <source>Only rows whose column {column} is true are trained.</source>
        <translation>只训练列 {column} 为 true 的行。</translation>
    </message>
    <message>
        <source>Only the samples change.</source>
        <translation>只影响样例。</translation>
    </message>
    <message>
        <source>Only the saving of checkpoints changes.</source>
        <translation>只影响检查点的保存。</translation>
    </message>
    <message>
        <source>Only the steps at which this happens change.</source>
        <translation>只影响在哪些步执行。</translation>
    </message>
    <message>
        <source>Only {num_trained:,} of {num_tokens:,} tokens are trained, less than 1%. The rest is read, not learned.</source>
        <translation>{num_tokens:,} 个词元中只有 {num_trained:,} 个参与训练，不到 1%。其余的只会被读取，不会被学习。</translation>
    </message>
    <message>
        <source>Operations on fast GPU kernels: {count}.</source>
        <translation>使用快速 GPU 内核的运算：{count} 种。</translation>
    </message>
    <message>
        <source>Operations without a GPU kernel: {count}. {reason}</source>
        <translation>未使用 GPU 内核的运算：{count} 种。{reason}</translation>
    </message>
    <message>
        <source>Over {rows} held-out rows the loss fell by {mean} (95% interval: {low} to {high}).</source>
        <translation>在 {rows} 行留出数据上，损失下降了 {mean}（95% 区间：{low} 至 {high}）。</translation>
    </message>
    <message>
        <source>Parameters</source>
        <translation>参数量</translation>
    </message>
    <message>
        <source>Passages whose reply could not be read: {number:,}</source>
        <translation>回答无法识别的段落：{number:,}</translation>
    </message>
    <message>
        <source>Persian</source>
        <translation>波斯语</translation>
    </message>
    <message>
        <source>Plain text: the column {text} is learned whole.</source>
        <translation>纯文本：完整学习列 {text}。</translation>
    </message>
    <message>
        <source>Polish</source>
        <translation>波兰语</translation>
    </message>
    <message>
        <source>Portuguese</source>
        <translation>葡萄牙语</translation>
    </message>
    <message>
        <source>Positions that are stretched by the method {method} can&apos;t be exported as GGUF.</source>
        <translation>用 {method} 方法扩展的位置编码无法导出为 GGUF。</translation>
    </message>
    <message>
        <source>Preference pairs with equal answers</source>
        <translation>两个回答相同的偏好对</translation>
    </message>
    <message>
        <source>Preference pairs: {num} in {path}</source>
        <translation>偏好数据对：{num} 条，保存在 {path}</translation>
    </message>
    <message>
        <source>Prompts and responses are trained as chats, by the chat template of the model.</source>
        <translation>提示词和回答按模型的对话模板作为对话训练。</translation>
    </message>
    <message>
        <source>Put a backslash before a character that has a meaning in patterns, such as ( or *.</source>
        <translation>在正则表达式中有特殊含义的字符（例如 ( 或 *）前加反斜杠。</translation>
    </message>
    <message>
        <source>QLoRA</source>
        <translation>QLoRA</translation>
    </message>
    <message>
        <source>Questions that another row answers differently</source>
        <translation>另一行给出了不同回答的问题</translation>
    </message>
    <message>
        <source>Questions that were asked before and were left out: {number:,}</source>
        <translation>因重复而略过的问题：{number:,}</translation>
    </message>
    <message>
        <source>Questions without words or answer that were left out: {number:,}</source>
        <translation>因没有内容或答案而略过的问题：{number:,}</translation>
    </message>
    <message>
        <source>ROUGE-L</source>
        <translation>ROUGE-L</translation>
    </message>
    <message>
        <source>Raise the context length, or have longer rows cut. Longer texts can also be split.</source>
        <translation>请增大上下文长度，或截断较长的数据行。较长的文本也可以拆分。</translation>
    </message>
    <message>
        <source>Raise this limit, lower the micro-batch size or the context length, or choose a smaller model.</source>
        <translation>请提高此上限，减小微批次大小或上下文长度，或选择更小的模型。</translation>
    </message>
    <message>
        <source>Remove the model and download it again.</source>
        <translation>请移除该模型后重新下载。</translation>
    </message>
    <message>
        <source>Restore the folder from a backup, or duplicate the run to train again.</source>
        <translation>请从备份恢复该文件夹，或复制这个运行，重新训练。</translation>
    </message>
    <message>
        <source>Restore the named files or choose the earlier folder to resume, or duplicate the run to start again.</source>
        <translation>请恢复所列文件或选回原来的文件夹后再继续，或复制此运行重新开始。</translation>
    </message>
    <message>
        <source>The data doesn&apos;t suit the way to teach</source>
        <translation>数据不适合所选的训练方式</translation>
    </message>
    <message>
        <source>What is learned needs rows of another kind, such as texts with labels or solutions in steps.</source>
        <translation>所选的训练方式需要另一种数据行，例如带标签的文本或分步解答。</translation>
    </message>
    <message>
        <source>Choose data of that kind, or teach in another way.</source>
        <translation>请选择这类数据，或改用其他训练方式。</translation>
    </message>
    <message>
        <source>The data keeps little of what the bigger model found likely</source>
        <translation>数据只保存了更大模型的一小部分概率</translation>
    </message>
    <message>
        <source>Only the likeliest tokens are kept at each place. The rest is not learned.</source>
        <translation>每个位置只保存最可能的词元，其余部分不会被学习。</translation>
    </message>
    <message>
        <source>Keep more tokens at each place, up to 20. Answers that this program writes keep 16.</source>
        <translation>请在每个位置保存更多词元，最多 20 个。本程序写回答时保存 16 个。</translation>
    </message>
    <message>
        <source>Rows are left out</source>
        <translation>有数据行被略去</translation>
    </message>
    <message>
        <source>Within the context length, these rows have nothing to learn, or longer rows are skipped.</source>
        <translation>在上下文长度之内，这些行没有可学习的内容，或者设置要求跳过超长的行。</translation>
    </message>
    <message>
        <source>Nothing has to be done if the run can do without these rows.</source>
        <translation>如果训练不需要这些行，则无需处理。</translation>
    </message>
    <message>
        <source>Bad rows are left out</source>
        <translation>坏行被略去</translation>
    </message>
    <message>
        <source>These rows can&apos;t be read or are missing a column, and the settings say that such rows are skipped.</source>
        <translation>这些行无法读取或缺少列，而设置要求跳过这样的行。</translation>
    </message>
    <message>
        <source>Nothing has to be done if the run can do without these rows. They can be corrected on the Data page.</source>
        <translation>如果训练不需要这些行，则无需处理。也可以在“数据”页修正它们。</translation>
    </message>
    <message>
        <source>To leave the experts out without this warning, name the modules that get an adapter.</source>
        <translation>若要不训练专家又不看到此提示，请写明要加适配器的模块名称。</translation>
    </message>
    <message>
        <source>The base model is in the trash</source>
        <translation>基础模型在回收站中</translation>
    </message>
    <message>
        <source>The model was deleted, and what a run has trained works only together with its base model.</source>
        <translation>该模型已被删除，而运行训练出的内容只能与其基础模型一起使用。</translation>
    </message>
    <message>
        <source>Restore the model. On the command line, tunesmith trash lists it.</source>
        <translation>请恢复该模型。在命令行中可用 tunesmith trash 列出它。</translation>
    </message>
    <message>
        <source>Tunesmith trains decoders, which write a text token by token. Encoders such as BERT and encoder-decoders such as T5 work differently. Models that need code of their own can&apos;t be loaded, since it is never run.</source>
        <translation>Tunesmith 训练逐个词元生成文本的解码器模型。BERT 等编码器和 T5 等编码器-解码器模型的工作方式不同。需要自带代码的模型无法加载，因为这些代码从不运行。</translation>
    </message>
    <message>
        <source>transformers can&apos;t run this model with its settings</source>
        <translation>transformers 无法按该模型的设置运行它</translation>
    </message>
    <message>
        <source>The weights are complete and match config.json. The code that transformers has for this type of model fails with these settings together.</source>
        <translation>权重完整，也与 config.json 相符。但 transformers 中这类模型的代码在这些设置的组合下会出错。</translation>
    </message>
    <message>
        <source>Choose another model. If config.json was changed by hand, restore the original.</source>
        <translation>请选择其他模型。如果手动修改过 config.json，请恢复原文件。</translation>
    </message>
    <message>
        <source>There is another folder in its place</source>
        <translation>原位置已有另一个文件夹</translation>
    </message>
    <message>
        <source>A deleted run or model is restored to the folder where it was.</source>
        <translation>已删除的运行或模型会恢复到原来的文件夹。</translation>
    </message>
    <message>
        <source>Rename the folder that is there now, then restore again.</source>
        <translation>请先重命名现在位于那里的文件夹，然后再恢复。</translation>
    </message>
    <message>
        <source>This is not in the trash</source>
        <translation>回收站中没有它</translation>
    </message>
    <message>
        <source>It was never deleted, was restored already, or was deleted for good.</source>
        <translation>它从未被删除、已经恢复，或已被永久删除。</translation>
    </message>
    <message>
        <source>Run tunesmith trash to list what can be restored.</source>
        <translation>运行 tunesmith trash 可列出能恢复的项目。</translation>
    </message>
    <message>
        <source>Several deleted items have this name</source>
        <translation>有多个已删除的项目使用这个名称</translation>
    </message>
    <message>
        <source>A name alone does not tell which one is meant.</source>
        <translation>仅凭名称无法确定是哪一个。</translation>
    </message>
    <message>
        <source>Run tunesmith trash to see when each was deleted, then restore one by its id.</source>
        <translation>运行 tunesmith trash 查看各项目的删除时间，然后按 ID 恢复其中一个。</translation>
    </message>
    <message>
        <source>The base model is another one</source>
        <translation>基础模型不是原来的那个</translation>
    </message>
    <message>
        <source>The run was trained on other weights, another configuration or another tokenizer than the folder holds now.</source>
        <translation>该运行训练时使用的权重、配置或分词器与文件夹中现有的不同。</translation>
    </message>
    <message>
        <source>The process ended without a result.</source>
        <translation>进程没有给出结果就结束了。</translation>
    </message>
    <message>
        <source>This model can&apos;t be the bigger model</source>
        <translation>这个模型不能用作更大的模型</translation>
    </message>
    <message>
        <source>A reward could not be computed</source>
        <translation>无法计算奖励</translation>
    </message>
    <message>
        <source>Your own Python file raised an error or gave something that is not a number, or no reward suits the data.</source>
        <translation>您自己的 Python 文件出错或返回的不是数字，或者没有适合这份数据的奖励。</translation>
    </message>
    <message>
        <source>The rewards teach nothing, or the wrong thing</source>
        <translation>奖励没有起到教学作用，或教错了方向</translation>
    </message>
    <message>
        <source>Learning needs answers to one prompt that differ in their reward. A reward that can be had without the task is exploited.</source>
        <translation>只有同一提示词的回答得到不同的奖励，模型才能学习。不完成任务也能拿到的奖励会被钻空子。</translation>
    </message>
    <message>
        <source>Look at the answers on the page of the run, then change the rewards or the data.</source>
        <translation>在运行页面查看回答，然后调整奖励或数据。</translation>
    </message>
    <message>
        <source>a 4-bit bigger model</source>
        <translation>4 位的更大的模型</translation>
    </message>
    <message>
        <source>A score has no unit and no zero. Of two answers to one question, the better one scores higher.</source>
        <translation>分数没有单位，也没有零点。对同一个问题的两个回答，较好的那个分数更高。</translation>
    </message>
    <message>
        <source>Adapters ({kind}): {names}.</source>
        <translation>适配器（{kind}）：{names}。</translation>
    </message>
    <message>
        <source>All answers to a prompt got the same reward for {steps} steps, {reward} on average, so nothing is learned. The task is too hard or too easy for the model, or the reward does not tell answers apart.</source>
        <translation>连续 {steps} 步，同一提示词的所有回答都得到相同的奖励（平均 {reward}），因此什么也学不到。任务对模型来说太难或太容易，或者奖励无法区分回答的好坏。</translation>
    </message>
    <message>
        <source>An output layer with a bias is trained whole in plain PyTorch.</source>
        <translation>带偏置的输出层用普通 PyTorch 整体训练。</translation>
    </message>
    <message>
        <source>Answers grow longer and longer, and {share} of them are cut. The reward may favor length. A reward for length counteracts that.</source>
        <translation>回答越来越长，其中 {share} 被截断。奖励可能偏向长回答。加入长度奖励可以抑制这一点。</translation>
    </message>
    <message>
        <source>Ask it with: tunesmith ask RUN QUESTION</source>
        <translation>要向它提问，请运行：tunesmith ask RUN QUESTION</translation>
    </message>
    <message>
        <source>At {after} of the held-out tokens the model would write the same as the bigger one (before training: {before}).</source>
        <translation>在留出的词元中，有 {after} 的位置模型会写出与更大的模型相同的内容（训练前：{before}）。</translation>
    </message>
    <message>
        <source>At {length} tokens, {num_cut} of {num_rows} would be cut.</source>
        <translation>若为 {length} 个词元，{num_rows} 行中会有 {num_cut} 行被截断。</translation>
    </message>
    <message>
        <source>Attention&apos;s expansions</source>
        <translation>注意力的升维层</translation>
    </message>
    <message>
        <source>Bad rows left out: {number:,}.</source>
        <translation>略去了 {number:,} 个坏行。</translation>
    </message>
    <message>
        <source>Both answers are the same word for word, so this counts as the same.</source>
        <translation>两个回答一字不差，因此计为“相同”。</translation>
    </message>
    <message>
        <source>Choose a bigger model that answers better than the base model.</source>
        <translation>请选择一个比基础模型答得更好的更大的模型。</translation>
    </message>
    <message>
        <source>Choose a higher level for more.</source>
        <translation>选择更高的难度可以得到更多题目。</translation>
    </message>
    <message>
        <source>Choose data with a problem, the steps of a solution and their labels in each row, or teach in another way.</source>
        <translation>请选择每行都有题目、解题步骤及其标签的数据，或改用其他训练方式。</translation>
    </message>
    <message>
        <source>Choose data with a text and its label in each row, or teach in another way.</source>
        <translation>请选择每行都有文本及其标签的数据，或改用其他训练方式。</translation>
    </message>
    <message>
        <source>Choose the unquantized model that it was made from: {base}.</source>
        <translation>请选择它的未量化原模型：{base}。</translation>
    </message>
    <message>
        <source>Choose the unquantized version of the model.</source>
        <translation>请选择该模型的未量化版本。</translation>
    </message>
    <message>
        <source>Choose the usual initial values, a lower rank, or more data.</source>
        <translation>可以选择常用的初始值、更低的秩，或使用更多数据。</translation>
    </message>
    <message>
        <source>Deleted at</source>
        <translation>删除时间</translation>
    </message>
    <message>
        <source>DoRA runs in plain PyTorch.</source>
        <translation>DoRA 用普通 PyTorch 运行。</translation>
    </message>
    <message>
        <source>Every answer is labeled bad ({num:,}). This objective needs good answers too.</source>
        <translation>所有回答都标注为差（{num:,} 个）。这个目标还需要好的回答。</translation>
    </message>
    <message>
        <source>Every answer is labeled good ({num:,}). This objective needs bad answers too.</source>
        <translation>所有回答都标注为好（{num:,} 个）。这个目标还需要差的回答。</translation>
    </message>
    <message>
        <source>Examples in the files: {num:,}. Held out: {held_out:,}. Left out by &quot;Most rows&quot;: {num_left:,}.</source>
        <translation>文件中的样本：{num:,}。留出：{held_out:,}。因“最多行数”略去：{num_left:,}。</translation>
    </message>
    <message>
        <source>Experts with norms of their own beside an MLP are not supported.</source>
        <translation>暂不支持与 MLP 并列且自带归一化层的专家。</translation>
    </message>
    <message>
        <source>Export the adapter alone.</source>
        <translation>请单独导出适配器。</translation>
    </message>
    <message>
        <source>Folder</source>
        <translation>文件夹</translation>
    </message>
    <message>
        <source>Further files can&apos;t be read: {num}.</source>
        <translation>另有无法读取的文件：{num}。</translation>
    </message>
    <message>
        <source>Have a bigger model answer the prompts and keep its probabilities, or teach by example (SFT).</source>
        <translation>让更大的模型回答这些提示词并保存它的概率，或改用示例教学（SFT）。</translation>
    </message>
    <message>
        <source>Held-out perplexity of each data file:</source>
        <translation>每个数据文件的留出困惑度：</translation>
    </message>
    <message>
        <source>Held-out perplexity of {name}: {before} before, {after} after training. Rows: {rows:,}.</source>
        <translation>{name} 的留出困惑度：训练前 {before}，训练后 {after}。行数：{rows:,}。</translation>
    </message>
    <message>
        <source>Held-out rows: about {held_out} of {num_rows}. With fewer than {least}, nobody can tell whether the model improved.</source>
        <translation>{num_rows} 行中留出约 {held_out} 行。少于 {least} 行时，无法判断模型是否有提升。</translation>
    </message>
    <message>
        <source>Id</source>
        <translation>ID</translation>
    </message>
    <message>
        <source>In {after} of the held-out pairs the better answer scores higher, as before (guessing: 50%).</source>
        <translation>在 {after} 的留出样本对中，较好的回答得分更高，与训练前相同（随机猜测：50%）。</translation>
    </message>
    <message>
        <source>Install the training environment</source>
        <translation>安装训练环境</translation>
    </message>
    <message>
        <source>It does not support attention in chunks.</source>
        <translation>它不支持分块注意力。</translation>
    </message>
    <message>
        <source>It does not support attention sinks.</source>
        <translation>它不支持注意力汇（attention sinks）。</translation>
    </message>
    <message>
        <source>It does not support scores that fall with the distance (ALiBi).</source>
        <translation>它不支持随距离递减的注意力分数（ALiBi）。</translation>
    </message>
    <message>
        <source>It is for head sizes above {size}.</source>
        <translation>它用于大于 {size} 的注意力头。</translation>
    </message>
    <message>
        <source>It needs values of the size of the keys.</source>
        <translation>它要求值的维度与键相同。</translation>
    </message>
    <message>
        <source>Its products are too coarse for {dtype}.</source>
        <translation>它的乘积精度不足以用于 {dtype}。</translation>
    </message>
    <message>
        <source>Kind</source>
        <translation>类型</translation>
    </message>
    <message>
        <source>Label: {label}</source>
        <translation>标签：{label}</translation>
    </message>
    <message>
        <source>Labels and their rows: {labels}, and {more:,} other labels.</source>
        <translation>各标签的行数：{labels}，另有 {more:,} 个标签。</translation>
    </message>
    <message>
        <source>Labels and their rows: {labels}.</source>
        <translation>各标签的行数：{labels}。</translation>
    </message>
    <message>
        <source>Laurel</source>
        <translation>Laurel</translation>
    </message>
    <message>
        <source>Let answers be shorter (rollouts.max_tokens), or use fewer examples at once.</source>
        <translation>请缩短回答（rollouts.max_tokens），或减少同时处理的样本。</translation>
    </message>
    <message>
        <source>Losses, held-out ones too, include the model&apos;s own term for an even use of its experts (output_router_logits), so perplexities made of them are too high.</source>
        <translation>损失（包括留出数据的损失）中含有模型自身用于均衡使用各专家的一项（output_router_logits），因此由这些损失算出的困惑度偏高。</translation>
    </message>
    <message>
        <source>Lower the learning rate, so that the model keeps what it has in common with the bigger one.</source>
        <translation>请降低学习率，让模型保留与更大的模型一致的部分。</translation>
    </message>
    <message>
        <source>Moved to the trash: {path} ({size})</source>
        <translation>已移到回收站：{path}（{size}）</translation>
    </message>
    <message>
        <source>Name</source>
        <translation>名称</translation>
    </message>
    <message>
        <source>No adapter fits here: {names}. In this type of model PEFT takes these names for those of the experts.</source>
        <translation>这里无法使用适配器：{names}。在这种模型中，PEFT 会把这些名称当作专家的名称。</translation>
    </message>
    <message>
        <source>No adapter fits here: {names}. In this type of model other code reads these weights, past an adapter.</source>
        <translation>这里无法使用适配器：{names}。在这种模型中，其他代码直接读取这些权重，会绕过适配器。</translation>
    </message>
    <message>
        <source>No context length would change that. Check which column holds the answers.</source>
        <translation>无论上下文长度设为多少都无济于事。请检查答案在哪一列。</translation>
    </message>
    <message>
        <source>No fused kernel computes {kind}.</source>
        <translation>没有支持 {kind} 的融合内核。</translation>
    </message>
    <message>
        <source>No fused kernel reads 8-bit weights.</source>
        <translation>没有融合内核能读取 8 位权重。</translation>
    </message>
    <message>
        <source>No module with an adapter is called {pattern}. Those with one are {known}.</source>
        <translation>没有名为 {pattern} 的带适配器的模块。带适配器的模块有 {known}。</translation>
    </message>
    <message>
        <source>No more of the labels are predicted rightly, although the held-out loss fell from {before} to {after}.</source>
        <translation>预测正确的标签并没有变多，尽管留出损失从 {before} 降到了 {after}。</translation>
    </message>
    <message>
        <source>No vote prefers an answer yet, so there are no pairs to learn from.</source>
        <translation>还没有投票选出更好的回答，因此没有可供学习的偏好对。</translation>
    </message>
    <message>
        <source>No word of the data is both frequent and written in many pieces.</source>
        <translation>数据中没有既常见又被拆成很多片段的词。</translation>
    </message>
    <message>
        <source>None of the first {num_rows:,} rows has a token to learn.</source>
        <translation>前 {num_rows:,} 行都没有可学习的词元。</translation>
    </message>
    <message>
        <source>Nothing in the trash is named {name!r}.</source>
        <translation>回收站中没有名为 {name!r} 的项目。</translation>
    </message>
    <message>
        <source>Of layers called {names} only those of the experts get an adapter: of this type &quot;all-linear&quot; leaves out shared experts and layers without experts.</source>
        <translation>名为 {names} 的层中，只有专家的层会得到适配器：对于这种模型，“all-linear”不包括共享专家和没有专家的层。</translation>
    </message>
    <message>
        <source>One vote teaches the model next to nothing. At best it repeats that one answer. More than {few} votes are a start, and more are better.</source>
        <translation>只凭一票，模型几乎学不到什么，最多会重复那一个回答。{few} 票以上才算起步，越多越好。</translation>
    </message>
    <message>
        <source>Only some layers have their norms behind the sums, which is not supported.</source>
        <translation>只有部分层的归一化层位于求和之后，不支持这种情况。</translation>
    </message>
    <message>
        <source>Pairs left out because their answers begin or differ beyond the context length of {limit} tokens: {number:,} of {num_rows:,}.</source>
        <translation>有 {number:,} 对回答（共 {num_rows:,} 对）要到 {limit} 个词元的上下文长度之后才开始或出现差异，因此被略去。</translation>
    </message>
    <message>
        <source>Pairs that contradict another one: {num:,} of {num_pairs:,}. What is the better answer in one is the worse one in the other, so nothing is learned from them.</source>
        <translation>与另一对相互矛盾的偏好对：{num:,} / {num_pairs:,}。同一个回答在一对里较好，在另一对里较差，因此从中学不到任何东西。</translation>
    </message>
    <message>
        <source>Predicted number: {number}</source>
        <translation>预测的数值：{number}</translation>
    </message>
    <message>
        <source>Preference pairs: the column {chosen} has the better answer, {rejected} the worse one.</source>
        <translation>偏好对：列 {chosen} 为较好的回答，{rejected} 为较差的回答。</translation>
    </message>
    <message>
        <source>Problems found: {num_faults} ({num_checks} checks in {time}).</source>
        <translation>发现问题：{num_faults} 个（{num_checks} 项检查，用时 {time}）。</translation>
    </message>
    <message>
        <source>QLoRA trains on a processor too, but slowly, so it isn&apos;t shown here.</source>
        <translation>QLoRA 也能在处理器上训练，但很慢，因此这里不显示。</translation>
    </message>
    <message>
        <source>Raise the context length to {longest} tokens.</source>
        <translation>请将上下文长度增大到 {longest} 个词元。</translation>
    </message>
    <message>
        <source>Rates {share} of {places} texts alike, at most {nats} nats apart on average.</source>
        <translation>{places} 个文本中有 {share} 评价一致，平均相差至多 {nats} nats。</translation>
    </message>
    <message>
        <source>Restore it. On the command line: tunesmith restore {id}</source>
        <translation>请恢复它。命令行：tunesmith restore {id}</translation>
    </message>
    <message>
        <source>Review them on the Data page before you train on them. A model can be wrong.</source>
        <translation>训练前请在“数据”页审核。模型可能出错。</translation>
    </message>
    <message>
        <source>Right answers to {asked} held-out questions: {before} before, {now} after.</source>
        <translation>{asked} 个留出的问题中答对的：训练前 {before} 个，训练后 {now} 个。</translation>
    </message>
    <message>
        <source>Romanian</source>
        <translation>罗马尼亚语</translation>
    </message>
    <message>
        <source>Rounding differs, so the losses can differ slightly.</source>
        <translation>舍入方式不同，损失可能略有差别。</translation>
    </message>
    <message>
        <source>Row {number} can&apos;t be read, so it fits into no table.</source>
        <translation>第 {number} 行无法读取，因此不能写入表格。</translation>
    </message>
    <message>
        <source>Rows left out because their answers begin beyond the context length of {limit} tokens: {number:,} of {num_rows:,}.</source>
        <translation>有 {number:,} 行（共 {num_rows:,} 行）的回答在 {limit} 个词元的上下文长度之后才开始，因此被略去。</translation>
    </message>
    <message>
        <source>Rows left out because they have nothing to learn, whatever the context length: {number:,} of {num_rows:,}.</source>
        <translation>有 {number:,} 行（共 {num_rows:,} 行）无论上下文长度多少都没有可学习的内容，因此被略去。</translation>
    </message>
    <message>
        <source>Rows longer than the context length of {limit} tokens are skipped: {number:,} of {num_rows:,}.</source>
        <translation>超过 {limit} 个词元上下文长度的数据行会被跳过：{number:,} / {num_rows:,}。</translation>
    </message>
    <message>
        <source>Rows or pages of the documents that could not be read: {number:,}</source>
        <translation>文档中无法读取的行或页：{number:,}</translation>
    </message>
    <message>
        <source>Rows that could not be read and were left out: {number:,}</source>
        <translation>无法读取而略去的行：{number:,}</translation>
    </message>
    <message>
        <source>Rows that the model can&apos;t be trained on</source>
        <translation>该模型无法用来训练的数据行</translation>
    </message>
    <message>
        <source>Rows that were looked at: {num_rows:,}.</source>
        <translation>查看了 {num_rows:,} 行。</translation>
    </message>
    <message>
        <source>Rows with nothing to learn within the context length</source>
        <translation>上下文长度内没有可学习内容的行</translation>
    </message>
    <message>
        <source>Rows without an answer were kept: {number:,}. A run can&apos;t train on them.</source>
        <translation>没有回答而保留的行：{number:,}。训练无法使用这些行。</translation>
    </message>
    <message>
        <source>Rows without an answer were left out: {number:,}</source>
        <translation>没有回答而被略过的行：{number:,}</translation>
    </message>
    <message>
        <source>Run tunesmith models list to see them.</source>
        <translation>请运行 tunesmith models list 查看。</translation>
    </message>
    <message>
        <source>Run: tunesmith harness</source>
        <translation>请运行：tunesmith harness</translation>
    </message>
    <message>
        <source>Run: tunesmith harness --yes. A task that needs more packages than these can&apos;t be run.</source>
        <translation>请运行：tunesmith harness --yes。需要其他软件包的任务无法运行。</translation>
    </message>
    <message>
        <source>Runs</source>
        <translation>运行</translation>
    </message>
    <message>
        <source>Russian</source>
        <translation>俄语</translation>
    </message>
    <message>
        <source>Samples can end elsewhere. Training is not affected.</source>
        <translation>样例的结束位置可能不同，训练不受影响。</translation>
    </message>
    <message>
        <source>Say which column is the problem, which holds the steps and which their labels.</source>
        <translation>指定哪一列是题目，哪一列是步骤，哪一列是步骤的标签。</translation>
    </message>
    <message>
        <source>Say which column is the text and which the label.</source>
        <translation>指定哪一列是文本，哪一列是标签。</translation>
    </message>
    <message>
        <source>Score: {score}</source>
        <translation>分数：{score}</translation>
    </message>
    <message>
        <source>Set alpha to once or twice the rank.</source>
        <translation>请把 alpha 设为秩的一到两倍。</translation>
    </message>
    <message>
        <source>Set the context length to {positions} tokens or less.</source>
        <translation>请将上下文长度设为不超过 {positions} 个词元。</translation>
    </message>
    <message>
        <source>Set the rank to {most} or less.</source>
        <translation>将秩设为 {most} 或更低。</translation>
    </message>
    <message>
        <source>Sign test: p {p}.</source>
        <translation>符号检验：p {p}。</translation>
    </message>
    <message>
        <source>Size</source>
        <translation>大小</translation>
    </message>
    <message>
        <source>Skipped {num_skipped:,} of {rows}.</source>
        <translation>{rows}中跳过了 {num_skipped:,} 行。</translation>
    </message>
    <message>
        <source>Spanish</source>
        <translation>西班牙语</translation>
    </message>
    <message>
        <source>Start LM Studio once, then export again.</source>
        <translation>请先启动一次 LM Studio，然后重新导出。</translation>
    </message>
    <message>
        <source>Step {step}</source>
        <translation>第 {step} 步</translation>
    </message>
    <message>
        <source>Step {step} is right with a probability of {share}.</source>
        <translation>第 {step} 个步骤正确的概率为 {share}。</translation>
    </message>
    <message>
        <source>Step {step}: the evaluation loss is NaN or infinite.</source>
        <translation>第 {step} 步：评估损失为 NaN 或无穷大。</translation>
    </message>
    <message>
        <source>Step {step}: {words}</source>
        <translation>第 {step} 步：{words}</translation>
    </message>
    <message>
        <source>Steps: about {steps}</source>
        <translation>步数：约 {steps}</translation>
    </message>
    <message>
        <source>Swedish</source>
        <translation>瑞典语</translation>
    </message>
    <message>
        <source>Technical details</source>
        <translation>技术细节</translation>
    </message>
    <message>
        <source>Texts longer than the context length of {limit} tokens: {num_split}. They were split into {num_parts} examples.</source>
        <translation>超过 {limit} 个词元上下文长度的文本：{num_split} 条，已拆分为 {num_parts} 个样本。</translation>
    </message>
    <message>
        <source>Thai</source>
        <translation>泰语</translation>
    </message>
    <message>
        <source>That is more than chance: {winner} gives better answers.</source>
        <translation>这不是偶然：{winner}的回答更好。</translation>
    </message>
    <message>
        <source>That is worse than guessing.</source>
        <translation>这还不如随机猜测。</translation>
    </message>
    <message>
        <source>The 16-bit numbers of this model change what it says: {agreement} of the texts are rated as the trained model rates them. The adapter on its base model loses nothing.</source>
        <translation>此模型的 16 位数字改变了它的判断：{agreement} 的文本与训练后的模型评价相同。基座模型加适配器则没有任何损失。</translation>
    </message>
    <message>
        <source>The Modelfile can&apos;t hold the system prompt of the training rows. Begin each conversation with it; it stands in {card}.</source>
        <translation>Modelfile 无法容纳训练数据的系统提示词。请在每次对话开头给出它；它写在 {card} 中。</translation>
    </message>
    <message>
        <source>The adapter changes {name}, for which the base model has no file.</source>
        <translation>适配器改动了 {name}，但基础模型的文件中没有它。</translation>
    </message>
    <message>
        <source>The adapter of {name} can&apos;t be merged into its weights.</source>
        <translation>{name} 的适配器无法合并到权重中。</translation>
    </message>
    <message>
        <source>The base model comes quantized ({format}). Its experts are used as they are.</source>
        <translation>基座模型本身已量化（{format}），其专家权重将直接使用。</translation>
    </message>
    <message>
        <source>The chat template can&apos;t write some rows ({num:,}), so they are skipped. The first: {reason}</source>
        <translation>有些行（{num:,}）无法用对话模板写出，因此会被跳过。第一处：{reason}</translation>
    </message>
    <message>
        <source>The checkpoint depends on settings that were changed. {names}.</source>
        <translation>检查点所依赖的设置已更改。{names}。</translation>
    </message>
    <message>
        <source>The checkpoint is from an earlier version, so changed settings can&apos;t be detected.</source>
        <translation>该检查点由旧版本保存，无法判断哪些设置已更改。</translation>
    </message>
    <message>
        <source>The checkpoint is from an earlier version, so changes to the base model can&apos;t be detected.</source>
        <translation>该检查点由旧版本保存，无法判断基础模型是否已更改。</translation>
    </message>
    <message>
        <source>The code of {name} doesn&apos;t run on a small example, so it can&apos;t be checked.</source>
        <translation>{name} 的代码无法在小例子上运行，因此无法检查它。</translation>
    </message>
    <message>
        <source>The column {column} describes tools.</source>
        <translation>列 {column} 描述工具。</translation>
    </message>
    <message>
        <source>The column {column} holds the system prompt.</source>
        <translation>列 {column} 是系统提示词。</translation>
    </message>
    <message>
        <source>The column {column} holds what a bigger model found likely.</source>
        <translation>{column} 列保存了更大的模型认为可能的词元。</translation>
    </message>
    <message>
        <source>The column {column} stands beside the question.</source>
        <translation>列 {column} 与问题放在一起。</translation>
    </message>
    <message>
        <source>The context length of {tokens:,} tokens is for the rows of the data. What the model writes may be longer.</source>
        <translation>{tokens:,} 个词元的上下文长度只限制数据中的行，模型写出的回答可以更长。</translation>
    </message>
    <message>
        <source>The data changed, so the remaining steps train on other rows.</source>
        <translation>数据已更改，其余各步使用不同的行训练。</translation>
    </message>
    <message>
        <source>The data holds a row without a prompt of its own, such as plain text. Learning from rewards needs prompts with answers.</source>
        <translation>数据中有一行没有提示词，例如纯文本。从奖励中学习需要带答案的提示词。</translation>
    </message>
    <message>
        <source>The data of {tasks} can&apos;t be read: {problem}.</source>
        <translation>无法读取 {tasks} 的数据：{problem}。</translation>
    </message>
    <message>
        <source>The evaluation loss of the base model itself is NaN or infinite.</source>
        <translation>基础模型本身的评估损失就是 NaN 或无穷大。</translation>
    </message>
    <message>
        <source>The experts</source>
        <translation>专家</translation>
    </message>
    <message>
        <source>The experts have an adapter that is not supported.</source>
        <translation>专家带有不受支持的适配器。</translation>
    </message>
    <message>
        <source>The experts of {num_on_host} of {num_layers} layers are kept in system memory.</source>
        <translation>{num_layers} 层中有 {num_on_host} 层的专家权重保存在内存中。</translation>
    </message>
    <message>
        <source>The files are laid out differently, so every row was written as a chat of messages.</source>
        <translation>各文件的结构不同，因此每一行都写成了由消息组成的对话。</translation>
    </message>
    <message>
        <source>The first: {reason}</source>
        <translation>第一个问题：{reason}</translation>
    </message>
    <message>
        <source>The folder {folder} is missing.</source>
        <translation>文件夹 {folder} 不存在。</translation>
    </message>
    <message>
        <source>The folder {path} does not exist.</source>
        <translation>文件夹 {path} 不存在。</translation>
    </message>
    <message>
        <source>The frozen weights are multiplied in another precision from here on.</source>
        <translation>此后冻结权重以另一种精度参与乘法。</translation>
    </message>
    <message>
        <source>The held-out rows changed, so earlier evaluation losses can&apos;t be compared with new ones.</source>
        <translation>用于评估的行已更改，评估损失不能与之前的结果比较。</translation>
    </message>
    <message>
        <source>The hub has no such model.</source>
        <translation>模型站没有这样的模型。</translation>
    </message>
    <message>
        <source>The hub has no {id}.</source>
        <translation>模型站没有 {id}。</translation>
    </message>
    <message>
        <source>The keyring refused the token ({reason}).</source>
        <translation>密钥环拒绝保存令牌（{reason}）。</translation>
    </message>
    <message>
        <source>The learning rate follows another curve from here on.</source>
        <translation>此后学习率按另一条曲线变化。</translation>
    </message>
    <message>
        <source>The learning rate is too high. Train again with a fifth of it.</source>
        <translation>学习率过高。请用五分之一的学习率重新训练。</translation>
    </message>
    <message>
        <source>The library already keeps {path} as {name}.</source>
        <translation>数据集库已用名称“{name}”保存了 {path}。</translation>
    </message>
    <message>
        <source>The list of runs shows which are in progress.</source>
        <translation>运行列表会显示哪些运行正在进行。</translation>
    </message>
    <message>
        <source>The longest row has {longest} tokens, but the model is made for {stated}. It may not work well beyond that.</source>
        <translation>最长的一行有 {longest} 个词元，但该模型按 {stated} 个词元设计，超出后效果可能不佳。</translation>
    </message>
    <message>
        <source>The loss includes a term that keeps logits small (z_loss_coefficient).</source>
        <translation>损失中包含使 logits 保持较小的项（z_loss_coefficient）。</translation>
    </message>
    <message>
        <source>The loss is another one from here on, so earlier losses can&apos;t be compared.</source>
        <translation>从这里开始使用另一种损失，与之前的损失不可比较。</translation>
    </message>
    <message>
        <source>The loss is the divergence between the model and the bigger one in nats per token. At 0 both would say the same.</source>
        <translation>损失是模型与更大的模型之间的散度，单位为每词元纳特。为 0 时两者的输出相同。</translation>
    </message>
    <message>
        <source>The loss is the mean over pairs. The lower it is, the more clearly the better answers are preferred. With DPO&apos;s original loss it begins at 0.693, where neither answer is preferred.</source>
        <translation>损失是所有偏好对的平均值，越低表示模型越明显地偏好较好的回答。使用 DPO 原始损失时从 0.693 开始，此时对两个回答没有偏好。</translation>
    </message>
    <message>
        <source>The loss was NaN or infinite in every step. Nothing was learned.</source>
        <translation>每一步的损失都是 NaN 或无穷大，什么也没有学到。</translation>
    </message>
    <message>
        <source>The model has no layer {number}. Its layers are 0 to {last}.</source>
        <translation>模型没有第 {number} 层。它的层为 0 到 {last}。</translation>
    </message>
    <message>
        <source>The model has no module named {name}. Its modules are {known}.</source>
        <translation>模型没有名为 {name} 的模块。它的模块有 {known}。</translation>
    </message>
    <message>
        <source>The model has probably memorized its rows: it saw {num_rows} rows {epochs} times, and no held-out rows were measured.</source>
        <translation>模型很可能只是背下了数据：它把 {num_rows} 行数据看了 {epochs} 遍，而且没有测量留出数据。</translation>
    </message>
    <message>
        <source>The model is compared with the bigger one in plain PyTorch.</source>
        <translation>模型与更大的模型的比较由普通 PyTorch 完成。</translation>
    </message>
    <message>
        <source>The model is memorizing its rows: the training loss is {training}, but the held-out loss has stopped improving at {after}. Train on more rows that differ from each other, or for fewer steps.</source>
        <translation>模型正在死记硬背：训练损失为 {training}，但留出数据的损失停在 {after}，不再改善。请用更多彼此不同的数据行训练，或减少训练步数。</translation>
    </message>
    <message>
        <source>The model needs plain PyTorch. {reason}</source>
        <translation>该模型需要用普通 PyTorch 运行。{reason}</translation>
    </message>
    <message>
        <source>The model of this run writes texts and rates none.</source>
        <translation>本次运行的模型只写文本，不给文本打分。</translation>
    </message>
    <message>
        <source>The model uses {used} of the {num_logits} logits that its output layer gives.</source>
        <translation>模型的输出层给出 {num_logits} 个 logits，而模型只使用其中 {used} 个。</translation>
    </message>
    <message>
        <source>The model was trained in plain PyTorch, without fast kernels. {reason}</source>
        <translation>模型使用原生 PyTorch 训练，未使用快速内核。{reason}</translation>
    </message>
    <message>
        <source>The model {name} was deleted and is in the trash.</source>
        <translation>模型 {name} 已被删除，现在在回收站中。</translation>
    </message>
    <message>
        <source>The model&apos;s embedded tokens are computed in plain PyTorch, without room for noise.</source>
        <translation>该模型的词元嵌入由普通 PyTorch 计算，无法加入噪声。</translation>
    </message>
    <message>
        <source>The name of a data set can&apos;t hold / or \: {name}</source>
        <translation>数据集的名称不能包含 / 或 \：{name}</translation>
    </message>
    <message>
        <source>The name of {path} must end in .jsonl.</source>
        <translation>{path} 的名称必须以 .jsonl 结尾。</translation>
    </message>
    <message>
        <source>The own weights of {kind} are trained in plain PyTorch.</source>
        <translation>{kind} 自身的权重用普通 PyTorch 训练。</translation>
    </message>
    <message>
        <source>The pattern {pattern} takes too much time or memory for one answer.</source>
        <translation>正则表达式 {pattern} 匹配一个回答时占用的时间或内存过多。</translation>
    </message>
    <message>
        <source>The per-layer block</source>
        <translation>逐层输入模块</translation>
    </message>
    <message>
        <source>The per-layer inputs</source>
        <translation>逐层输入</translation>
    </message>
    <message>
        <source>The preferences were not learned, although the held-out loss fell from {before} to {after}.</source>
        <translation>留出数据的损失从 {before} 降到 {after}，但模型没有学会偏好。</translation>
    </message>
    <message>
        <source>The projections of streams</source>
        <translation>多流的投影</translation>
    </message>
    <message>
        <source>The prompt has {tokens:,} tokens, and this model reads at most {most:,}.</source>
        <translation>提示词有 {tokens:,} 个词元，而该模型最多读取 {most:,} 个。</translation>
    </message>
    <message>
        <source>The question is empty.</source>
        <translation>问题为空。</translation>
    </message>
    <message>
        <source>The questions so far are kept in {path}. Run the same command again to continue.</source>
        <translation>已生成的问题保存在 {path}。再次运行同一命令即可继续。</translation>
    </message>
    <message>
        <source>The remaining steps train on other rows.</source>
        <translation>其余各步使用不同的行训练。</translation>
    </message>
    <message>
        <source>The remaining updates are computed with the new value.</source>
        <translation>其余的更新按新的值计算。</translation>
    </message>
    <message>
        <source>The report could not be printed (exit code {code}).</source>
        <translation>报告无法打印（退出代码 {code}）。</translation>
    </message>
    <message>
        <source>The rest of the run learns from another bigger model.</source>
        <translation>运行的其余部分将向另一个更大的模型学习。</translation>
    </message>
    <message>
        <source>The reward in training was still rising at the end. Train for more steps.</source>
        <translation>结束时训练中的奖励仍在上升。请训练更多步。</translation>
    </message>
    <message>
        <source>The reward is the mean over answers. In training the model chooses its words at random, for held-out prompts it takes the most likely ones.</source>
        <translation>奖励是各回答的平均值。训练时模型随机选词，对留出的提示词则选最可能的词。</translation>
    </message>
    <message>
        <source>The reward margin, by how much it rates the better answer above the worse one, is {after}.</source>
        <translation>奖励差（模型对较好回答的评分高出较差回答多少）为 {after}。</translation>
    </message>
    <message>
        <source>The reward margin, by how much it rates the better answer above the worse one, went from {before} to {after}.</source>
        <translation>奖励差（模型对较好回答的评分高出较差回答多少）从 {before} 变为 {after}。</translation>
    </message>
    <message>
        <source>The rows come in another order, and rows that were trained can now be held out for evaluation.</source>
        <translation>行的顺序有变化，训练过的行现在可能被留作评估。</translation>
    </message>
    <message>
        <source>The rows come in another order, so some may be seen twice in this epoch and others not at all.</source>
        <translation>行的顺序有变化，本轮中有的行可能出现两次，有的可能一次也不出现。</translation>
    </message>
    <message>
        <source>The run can end earlier or later.</source>
        <translation>运行可能提前或推迟结束。</translation>
    </message>
    <message>
        <source>The run ends at another step, and the learning rate follows the new length.</source>
        <translation>运行会在另一步结束，学习率按新的长度变化。</translation>
    </message>
    <message>
        <source>The run trained on {bits}-bit weights. This model has the unquantized ones, so its losses can differ a little.</source>
        <translation>此运行在 {bits} 位权重上训练。此模型使用未量化的权重，因此损失可能略有不同。</translation>
    </message>
    <message>
        <source>The run {run} has ended. There is nothing to stop.</source>
        <translation>运行 {run} 已经结束，没有可停止的内容。</translation>
    </message>
    <message>
        <source>The run {run} has no adapter and no checkpoint.</source>
        <translation>运行 {run} 没有适配器，也没有检查点。</translation>
    </message>
    <message>
        <source>The run {run} has no checkpoint of step {step}. It has: {steps}.</source>
        <translation>运行 {run} 没有第 {step} 步的检查点。现有：{steps}。</translation>
    </message>
    <message>
        <source>The run {run} holds out no rows.</source>
        <translation>训练 {run} 没有留出数据行。</translation>
    </message>
    <message>
        <source>The run {run} reached step {step}, but none of its checkpoints can be used.</source>
        <translation>运行 {run} 已到第 {step} 步，但它的检查点都不能使用。</translation>
    </message>
    <message>
        <source>The share of texts that are sorted into the right class. Before training the head is arbitrary.</source>
        <translation>被分到正确类别的文本所占比例。训练前的输出头没有意义。</translation>
    </message>
    <message>
        <source>The shared MLP</source>
        <translation>共享 MLP</translation>
    </message>
    <message>
        <source>The sizes of {name} don&apos;t fit each other.</source>
        <translation>{name} 的各项尺寸互不匹配。</translation>
    </message>
    <message>
        <source>The smallest SPEC.json: {&quot;version&quot;: 2, &quot;model&quot;: {&quot;path&quot;: &quot;FOLDER&quot;}, &quot;data&quot;: {&quot;sources&quot;: [{&quot;path&quot;: &quot;FILE&quot;}]}}
To learn from preference pairs, add &quot;objective&quot;: {&quot;kind&quot;: &quot;dpo&quot;}. Objectives: classify, cpo, dpo, gkd, grpo, kd, kto, orpo, prm, reward, rloo, sft, simpo.
Whatever a spec leaves out has its default. The Train page of the window saves whole specs.</source>
        <translation>最短的 SPEC.json：{&quot;version&quot;: 2, &quot;model&quot;: {&quot;path&quot;: &quot;FOLDER&quot;}, &quot;data&quot;: {&quot;sources&quot;: [{&quot;path&quot;: &quot;FILE&quot;}]}}
要从偏好对中学习，请加上 &quot;objective&quot;: {&quot;kind&quot;: &quot;dpo&quot;}。可用的目标：classify、cpo、dpo、gkd、grpo、kd、kto、orpo、prm、reward、rloo、sft、simpo。
没有写出的设置取默认值。窗口的“训练”页可以保存完整的设置。</translation>
    </message>
    <message>
        <source>The sum of --weights must be above 0: a file with the weight 0 gives no rows.</source>
        <translation>--weights 之和必须大于 0：权重为 0 的文件不提供任何行。</translation>
    </message>
    <message>
        <source>The system ended the training process because memory ran out.</source>
        <translation>内存耗尽，系统结束了训练进程。</translation>
    </message>
    <message>
        <source>The text is longer than the context length of the run. Tokens at its end that were not read: {num:,}.</source>
        <translation>文本超出了本次运行的上下文长度。末尾未读取的词元：{num:,} 个。</translation>
    </message>
    <message>
        <source>The tokenizer can&apos;t be exported as GGUF: it cuts a text into words in a way of its own.</source>
        <translation>分词器无法导出为 GGUF：它用自己的方式把文本切分成词。</translation>
    </message>
    <message>
        <source>The tokenizer can&apos;t be exported as GGUF: {reason}.</source>
        <translation>分词器无法导出为 GGUF：{reason}。</translation>
    </message>
    <message>
        <source>The tokens that the data keeps hold {known} of the bigger model&apos;s probability on average. The rest is not learned, so the model becomes surer than the bigger one is.</source>
        <translation>数据中保存的词元平均只占更大模型概率的 {known}。其余部分不会被学习，因此模型会比更大的模型更有把握。</translation>
    </message>
    <message>
        <source>The trained model</source>
        <translation>训练后的模型</translation>
    </message>
    <message>
        <source>The training environment is missing {names}, which this format needs.</source>
        <translation>训练环境缺少此格式所需的 {names}。</translation>
    </message>
    <message>
        <source>The training loss was still falling at the end. Train for more steps.</source>
        <translation>结束时训练损失仍在下降。请训练更多步。</translation>
    </message>
    <message>
        <source>The training process ended with exit code {shown} and without a result.</source>
        <translation>训练进程以退出码 {shown} 结束，没有结果。</translation>
    </message>
    <message>
        <source>The training rows are not the same as before, or become other tokens.</source>
        <translation>训练用的行与之前不同，或转换成了不同的词元。</translation>
    </message>
    <message>
        <source>The votes show no clear difference.</source>
        <translation>投票没有显示出明显差别。</translation>
    </message>
    <message>
        <source>The weight {name} has no place in a GGUF file of a model of type {kind}.</source>
        <translation>在 {kind} 类型模型的 GGUF 文件中没有权重 {name} 的位置。</translation>
    </message>
    <message>
        <source>The whole layer</source>
        <translation>整个层</translation>
    </message>
    <message>
        <source>Their own weights are trained.</source>
        <translation>它们自身的权重参与训练。</translation>
    </message>
    <message>
        <source>There are no models yet.</source>
        <translation>还没有模型。</translation>
    </message>
    <message>
        <source>There are too few rows to tell a difference from chance.</source>
        <translation>行数太少，无法区分差异与偶然。</translation>
    </message>
    <message>
        <source>There are {number} different answers. Rows with the rarest: {least:,}. Rows with the most frequent: {most:,}.</source>
        <translation>共有 {number} 种回答。最少的有 {least:,} 行，最多的有 {most:,} 行。</translation>
    </message>
    <message>
        <source>There is no model named {name} in {folder}.</source>
        <translation>{folder} 中没有名为 {name} 的模型。</translation>
    </message>
    <message>
        <source>There is no room for a single answer of {max_tokens} tokens beside the training.</source>
        <translation>训练之外的空间连一个 {max_tokens} 词元的回答都放不下。</translation>
    </message>
    <message>
        <source>There is no text to rate.</source>
        <translation>没有可以评判的文本。</translation>
    </message>
    <message>
        <source>There is too little memory to compare the file with the trained model. It was not verified.</source>
        <translation>内存不足，无法将文件与训练好的模型比较。文件未经验证。</translation>
    </message>
    <message>
        <source>There was not enough memory for an answer. It was skipped.</source>
        <translation>内存不足，无法生成回答，已跳过。</translation>
    </message>
    <message>
        <source>There was not enough memory for the answers. {num} are written at once.</source>
        <translation>内存不足以同时写这么多回答。现在每次写 {num} 个。</translation>
    </message>
    <message>
        <source>There was not enough memory to apply an update.</source>
        <translation>显存不足，无法完成这次参数更新。</translation>
    </message>
    <message>
        <source>There was nothing to learn: the model said the same as the bigger one before training.</source>
        <translation>没有可学的内容：训练前，模型的输出就已与更大的模型相同。</translation>
    </message>
    <message>
        <source>They do not support DoRA.</source>
        <translation>它们不支持 DoRA。</translation>
    </message>
    <message>
        <source>They do not support dropout.</source>
        <translation>它们不支持 dropout。</translation>
    </message>
    <message>
        <source>This model can&apos;t be fully fine-tuned: {problem}</source>
        <translation>无法对这个模型进行全量微调：{problem}</translation>
    </message>
    <message>
        <source>This model rates texts and writes none, so it can&apos;t answer a prompt.</source>
        <translation>该模型只给文本打分，不写文本，因此无法回答提示词。</translation>
    </message>
    <message>
        <source>This model rates texts and writes none, so it has no answers to look at.</source>
        <translation>该模型只给文本打分，不写文本，因此没有可查看的回答。</translation>
    </message>
    <message>
        <source>This model rates texts and writes none. Programs that read GGUF files expect one that writes.</source>
        <translation>该模型只给文本打分，不写文本，而读取 GGUF 文件的程序需要能写文本的模型。</translation>
    </message>
    <message>
        <source>This process may use {size:.1f} GiB of address space (ulimit -v).</source>
        <translation>此进程最多可使用 {size:.1f} GiB 的地址空间（ulimit -v）。</translation>
    </message>
    <message>
        <source>This run trained a model that rates texts and writes none, so there is nothing to chat with.</source>
        <translation>此次训练得到的模型只给文本打分，不写文本，因此无法对话。</translation>
    </message>
    <message>
        <source>This task has only {num:,} different problems of this level: {num_train:,} to train on and {num_held_out:,} held out.</source>
        <translation>这个任务在此难度下只有 {num:,} 道不同的题目：{num_train:,} 道用于训练，{num_held_out:,} 道留出。</translation>
    </message>
    <message>
        <source>Time: about {time}</source>
        <translation>用时：约 {time}</translation>
    </message>
    <message>
        <source>Time: not known, because the number of rows is not.</source>
        <translation>用时：不清楚，因为行数未知。</translation>
    </message>
    <message>
        <source>Time: {low} to {high}</source>
        <translation>用时：{low} 到 {high}</translation>
    </message>
    <message>
        <source>To bring it back: tunesmith restore {id}</source>
        <translation>要恢复它：tunesmith restore {id}</translation>
    </message>
    <message>
        <source>To cut less, raise the context length to {most} tokens.</source>
        <translation>如需少截断一些，请将上下文长度增大到 {most} 个词元。</translation>
    </message>
    <message>
        <source>To download: {missing} of {total}</source>
        <translation>待下载：{missing} / {total}</translation>
    </message>
    <message>
        <source>To install what is missing: {command}</source>
        <translation>安装缺少的部分：{command}</translation>
    </message>
    <message>
        <source>To keep all of every text, have longer texts split (Longer examples: Split).</source>
        <translation>如需保留文本的全部内容，请拆分过长的文本（“过长的样本”选“拆分”）。</translation>
    </message>
    <message>
        <source>To leave them out, skip longer rows.</source>
        <translation>如需排除过长的行，请选择跳过。</translation>
    </message>
    <message>
        <source>To repair the others: {command}</source>
        <translation>修复其余问题：{command}</translation>
    </message>
    <message>
        <source>To repair them: {command}</source>
        <translation>修复命令：{command}</translation>
    </message>
    <message>
        <source>To see them as tokens, name a model: --model MODEL</source>
        <translation>要查看词元，请指定模型：--model MODEL</translation>
    </message>
    <message>
        <source>To see what can be written here: {command} --help</source>
        <translation>查看可用的写法：{command} --help</translation>
    </message>
    <message>
        <source>To teach some of them, list them in model.new_tokens and set adapter.embeddings to new.</source>
        <translation>要教会其中一些词，请把它们写入 model.new_tokens，并把 adapter.embeddings 设为 new。</translation>
    </message>
    <message>
        <source>To train on these votes: tunesmith train {path}</source>
        <translation>用这些投票训练：tunesmith train {path}</translation>
    </message>
    <message>
        <source>To train them too, name the layers: {names}.</source>
        <translation>若也要训练它们，请写出各层的名称：{names}。</translation>
    </message>
    <message>
        <source>Tokens: the column {input_ids} holds numbers of tokens, which are used as they are.</source>
        <translation>词元：列 {input_ids} 包含词元编号，将原样使用。</translation>
    </message>
    <message>
        <source>Too few held-out prompts to tell whether the model improved: over {num_prompts} of them the mean reward went from {before} to {after}, which may be chance.</source>
        <translation>留出的提示词太少，无法判断模型是否进步：在 {num_prompts} 条上，平均奖励从 {before} 变为 {after}，可能只是偶然。</translation>
    </message>
    <message>
        <source>Too few votes to tell which one is better.</source>
        <translation>票数太少，无法判断哪个更好。</translation>
    </message>
    <message>
        <source>Too many levels of symbolic links</source>
        <translation>符号链接层数过多</translation>
    </message>
    <message>
        <source>Train at a higher rate</source>
        <translation>提高学习率再训练</translation>
    </message>
    <message>
        <source>Train at a lower rate</source>
        <translation>降低学习率再训练</translation>
    </message>
    <message>
        <source>Train for fewer steps</source>
        <translation>训练更少步</translation>
    </message>
    <message>
        <source>Train for more steps</source>
        <translation>训练更多步</translation>
    </message>
    <message>
        <source>Train for more steps or at a higher learning rate, or let it write more answers per prompt.</source>
        <translation>训练更多步，提高学习率，或让模型为每条提示词写更多回答。</translation>
    </message>
    <message>
        <source>Train for more steps, and hold out more prompts to measure it.</source>
        <translation>训练更多步，并多留出一些提示词来衡量。</translation>
    </message>
    <message>
        <source>Train for more steps, and hold out more rows to measure it.</source>
        <translation>请训练更多步，并留出更多数据行来测量。</translation>
    </message>
    <message>
        <source>Train for more steps, and look at the labels of the rows.</source>
        <translation>请训练更多步，并检查数据行的标签。</translation>
    </message>
    <message>
        <source>Train on more rows, or for fewer epochs.</source>
        <translation>请用更多数据训练，或减少训练轮数。</translation>
    </message>
    <message>
        <source>Train until step {step}</source>
        <translation>训练到第 {step} 步</translation>
    </message>
    <message>
        <source>Train until step {step} only, or at a lower learning rate.</source>
        <translation>只训练到第 {step} 步，或降低学习率。</translation>
    </message>
    <message>
        <source>Trained rows of new words: {count} of {names}.</source>
        <translation>训练的新词行：{names} 中的 {count} 行。</translation>
    </message>
    <message>
        <source>Trained whole: {names}.</source>
        <translation>整体训练：{names}。</translation>
    </message>
    <message>
        <source>Training changes {name}, which the files of the base model hold in another form.</source>
        <translation>训练会改变 {name}，而基础模型的文件以另一种形式保存它。</translation>
    </message>
    <message>
        <source>Training diverged: the training loss rose from {first} to {last}.</source>
        <translation>训练发散：训练损失从 {first} 升到 {last}。</translation>
    </message>
    <message>
        <source>Try it on texts that are not among the rows before you rely on it.</source>
        <translation>在依赖它之前，先用不在数据中的文本试一试。</translation>
    </message>
    <message>
        <source>Turkish</source>
        <translation>土耳其语</translation>
    </message>
    <message>
        <source>Ukrainian</source>
        <translation>乌克兰语</translation>
    </message>
    <message>
        <source>Urdu</source>
        <translation>乌尔都语</translation>
    </message>
    <message>
        <source>Use LoRA, or leave these weights out of the trained parts.</source>
        <translation>请改用 LoRA，或从要训练的部分中去掉这些权重。</translation>
    </message>
    <message>
        <source>Use Python 3.12 or 3.13, or install PySide6-Essentials 6.11.3.</source>
        <translation>请使用 Python 3.12 或 3.13，或安装 PySide6-Essentials 6.11.3。</translation>
    </message>
    <message>
        <source>Use answers of a bigger model of the same family as the base model, or leave rows like this one out.</source>
        <translation>请使用与基础模型同系列的更大模型的回答，或跳过这样的行。</translation>
    </message>
    <message>
        <source>Use shorter prompts, other data, or a model for longer texts.</source>
        <translation>请缩短提示词、改用其他数据，或选择支持更长文本的模型。</translation>
    </message>
    <message>
        <source>Use the file with llama.cpp or LM Studio, which read the template from it.</source>
        <translation>请在 llama.cpp 或 LM Studio 中使用该文件，它们会从文件中读取模板。</translation>
    </message>
    <message>
        <source>Use the original folder of the model, with safetensors files.</source>
        <translation>请使用模型的原始文件夹（含 safetensors 文件）。</translation>
    </message>
    <message>
        <source>Use {name}</source>
        <translation>启用 {name}</translation>
    </message>
    <message>
        <source>Verified: only rounding and stretched positions differ</source>
        <translation>已验证：仅有舍入和位置拉伸的差异</translation>
    </message>
    <message>
        <source>Verified: only stretched positions differ</source>
        <translation>已验证：仅有位置拉伸的差异</translation>
    </message>
    <message>
        <source>Vietnamese</source>
        <translation>越南语</translation>
    </message>
    <message>
        <source>Votes on {later} and {earlier}</source>
        <translation>{later}与{earlier}的投票</translation>
    </message>
    <message>
        <source>Wait until it ends, or choose another folder.</source>
        <translation>请等待它结束，或选择其他文件夹。</translation>
    </message>
    <message>
        <source>Wait until it has ended, or choose another name.</source>
        <translation>请等它结束，或换一个名称。</translation>
    </message>
    <message>
        <source>What the first layer reads is computed in plain PyTorch. {reason}</source>
        <translation>第一层的输入由普通 PyTorch 计算。{reason}</translation>
    </message>
    <message>
        <source>With the adapter, the weight {name} is NaN or infinite in {format}.</source>
        <translation>加上适配器后，权重 {name} 在 {format} 格式下为 NaN 或无穷大。</translation>
    </message>
    <message>
        <source>With the objective kd, a model learns from what this one found likely at each token.</source>
        <translation>使用目标 kd 时，模型会从这个模型在每个词元处认为可能的内容中学习。</translation>
    </message>
    <message>
        <source>Write each file to a name of its own.</source>
        <translation>请为每个文件指定不同的名称。</translation>
    </message>
    <message>
        <source>Write into the spec: {field}, for example {value}</source>
        <translation>请在配置文件中填写 {field}，例如 {value}</translation>
    </message>
    <message>
        <source>Write it like this: {example}. All options: {command} --help</source>
        <translation>请这样写：{example}。全部选项：{command} --help</translation>
    </message>
    <message>
        <source>Write it without a repetition inside a repetition, such as (a+)+.</source>
        <translation>请避免在重复中嵌套重复，例如 (a+)+。</translation>
    </message>
    <message>
        <source>Write true or false, good or bad, 1 or 0, 👍 or 👎.</source>
        <translation>可以写 true 或 false、好或差、1 或 0、👍 或 👎。</translation>
    </message>
    <message>
        <source>a checkpoint instead of the base model</source>
        <translation>与某个检查点比较，而不是基础模型</translation>
    </message>
    <message>
        <source>a document of an old Office program</source>
        <translation>旧版 Office 程序的文档</translation>
    </message>
    <message>
        <source>a file of rows to measure on; without it, the rows that the run holds out</source>
        <translation>用于测量的数据文件；不指定时使用该次训练留出的行</translation>
    </message>
    <message>
        <source>a folder with tasks of your own for --harness; code that they name is run</source>
        <translation>包含 --harness 自定义任务的文件夹；任务中指定的代码会被运行</translation>
    </message>
    <message>
        <source>a letter that was lost in a wrong encoding</source>
        <translation>因编码错误而丢失的字符</translation>
    </message>
    <message>
        <source>a password</source>
        <translation>密码</translation>
    </message>
    <message>
        <source>a payment card number</source>
        <translation>支付卡号</translation>
    </message>
    <message>
        <source>a phone number</source>
        <translation>电话号码</translation>
    </message>
    <message>
        <source>a private key</source>
        <translation>私钥</translation>
    </message>
    <message>
        <source>a regular expression; tells how many answers it is found in, (?i) ignores case</source>
        <translation>正则表达式；统计有多少回答与之匹配，(?i) 表示忽略大小写</translation>
    </message>
    <message>
        <source>a run: its name, its id as `tunesmith runs` lists it, its folder, or `latest`</source>
        <translation>运行：名称、ID（见 `tunesmith runs` 的列表）、文件夹，或 `latest`（最新的运行）</translation>
    </message>
    <message>
        <source>a social security number</source>
        <translation>社会安全号码</translation>
    </message>
    <message>
        <source>a table that it computes itself is empty after a model is loaded</source>
        <translation>它自行计算的一张表在模型加载后是空的</translation>
    </message>
    <message>
        <source>a task of lm-evaluation-harness</source>
        <translation>lm-evaluation-harness 的一个任务</translation>
    </message>
    <message>
        <source>a token that ends a document</source>
        <translation>结束文档的词元</translation>
    </message>
    <message>
        <source>above 1, tokens that occurred before become less likely</source>
        <translation>大于 1 时，已出现过的词元更不容易再次出现</translation>
    </message>
    <message>
        <source>adapter.alpha: {alpha:g} is beyond what a 32-bit number can be, so the loss would be infinite.</source>
        <translation>adapter.alpha：{alpha:g} 超出了 32 位数值的范围，损失会变成无穷大。</translation>
    </message>
    <message>
        <source>adapter.embeddings: PEFT can&apos;t train the embeddings of this model, which are its output layer as well. Leave them frozen, or use full fine-tuning.</source>
        <translation>adapter.embeddings：这个模型的嵌入同时也是输出层，PEFT 无法训练。请保持冻结，或使用全量微调。</translation>
    </message>
    <message>
        <source>adapter.initial_values: EVA needs more trained tokens than the rank, {rank}. The data has {num_tokens}.</source>
        <translation>adapter.initial_values：EVA 需要的训练词元数要多于秩 {rank}，而数据中只有 {num_tokens} 个。</translation>
    </message>
    <message>
        <source>adapter.layers: the model has no layer {number}. Its layers are 0 to {last}.</source>
        <translation>adapter.layers：模型没有第 {number} 层，它的层编号为 0 到 {last}。</translation>
    </message>
    <message>
        <source>adapter.modules_to_save: the model has no module named {name}. Its modules are {known}.</source>
        <translation>adapter.modules_to_save：模型没有名为 {name} 的模块。它的模块有 {known}。</translation>
    </message>
    <message>
        <source>adapter.modules_to_save: {name} can&apos;t be trained whole. Name single layers and norms whose weights are not in 4 or 8 bits.</source>
        <translation>adapter.modules_to_save：{name} 无法整体训练。请填写单个层或归一化层，且权重不是 4 位或 8 位。</translation>
    </message>
    <message>
        <source>adapter.modules_to_save: {name} is trained by the setting Embeddings and output layer. Remove it here.</source>
        <translation>adapter.modules_to_save：{name} 由设置“嵌入和输出层”训练。请在这里删去。</translation>
    </message>
    <message>
        <source>adapter.weights: this GPU can&apos;t calculate with bfloat16. Use float32.</source>
        <translation>adapter.weights：这块 GPU 不支持 bfloat16 计算。请使用 float32。</translation>
    </message>
    <message>
        <source>add files to the library under a name</source>
        <translation>以一个名称把文件加入数据集库</translation>
    </message>
    <message>
        <source>added_tokens contains {token}, which is not a token</source>
        <translation>added_tokens 中的 {token} 不是词元</translation>
    </message>
    <message>
        <source>after</source>
        <translation>之后</translation>
    </message>
    <message>
        <source>agrees with the bigger model</source>
        <translation>与更大的模型一致</translation>
    </message>
    <message>
        <source>also a model that runs need</source>
        <translation>也移除运行所需的模型</translation>
    </message>
    <message>
        <source>also list each token of these rows</source>
        <translation>同时列出这些行的每个词元</translation>
    </message>
    <message>
        <source>also make a model of this name in Ollama, of a GGUF file</source>
        <translation>同时用 GGUF 文件在 Ollama 中创建此名称的模型</translation>
    </message>
    <message>
        <source>also put a GGUF file where LM Studio finds it</source>
        <translation>同时把 GGUF 文件放到 LM Studio 能找到的位置</translation>
    </message>
    <message>
        <source>also upload it to the model hub, as a private repository</source>
        <translation>同时上传到模型站，作为私有仓库</translation>
    </message>
    <message>
        <source>also write the settings of a run that learns from the votes</source>
        <translation>同时写出从这些投票中学习的训练设置</translation>
    </message>
    <message>
        <source>also write the votes as preference pairs</source>
        <translation>同时把投票写成偏好数据对</translation>
    </message>
    <message>
        <source>an API key</source>
        <translation>API 密钥</translation>
    </message>
    <message>
        <source>an AWS access key</source>
        <translation>AWS 访问密钥</translation>
    </message>
    <message>
        <source>an XZ archive</source>
        <translation>XZ 压缩文件</translation>
    </message>
    <message>
        <source>an access token</source>
        <translation>访问令牌</translation>
    </message>
    <message>
        <source>an adapter is in the folder of the model, and it is not clear whether it belongs to it</source>
        <translation>模型文件夹中有一个适配器，无法确定它是否属于该模型</translation>
    </message>
    <message>
        <source>an answer does not end with {token!r}</source>
        <translation>回答没有以 {token!r} 结束</translation>
    </message>
    <message>
        <source>an archive inside of another is not read.</source>
        <translation>不读取压缩包中的压缩包。</translation>
    </message>
    <message>
        <source>an email address</source>
        <translation>电子邮件地址</translation>
    </message>
    <message>
        <source>an identity card number</source>
        <translation>身份证号码</translation>
    </message>
    <message>
        <source>an npm token</source>
        <translation>npm 令牌</translation>
    </message>
    <message>
        <source>and {count} more</source>
        <translation>另有 {count} 项</translation>
    </message>
    <message>
        <source>another seed gives other questions (0)</source>
        <translation>不同的种子生成不同的问题（0）</translation>
    </message>
    <message>
        <source>another seed picks other rows (0)</source>
        <translation>换一个种子会选出不同的行（0）</translation>
    </message>
    <message>
        <source>answers while they are written</source>
        <translation>正在写的回答</translation>
    </message>
    <message>
        <source>ask the held-out questions of the run</source>
        <translation>用该运行留出的问题提问</translation>
    </message>
    <message>
        <source>base model whose tokens are shown</source>
        <translation>按哪个基础模型显示词元</translation>
    </message>
    <message>
        <source>before</source>
        <translation>之前</translation>
    </message>
    <message>
        <source>better answer preferred</source>
        <translation>偏好较好回答</translation>
    </message>
    <message>
        <source>better answer preferred {share}  margin {margin}</source>
        <translation>偏好较好回答 {share}  奖励差 {margin}</translation>
    </message>
    <message>
        <source>bigger model</source>
        <translation>更大的模型</translation>
    </message>
    <message>
        <source>bring a deleted run or model back</source>
        <translation>恢复已删除的运行或模型</translation>
    </message>
    <message>
        <source>by {name}, the model would be larger than its weights: {size:,} numbers of {held:,}</source>
        <translation>按 {name} 计算，模型会比权重还大：需要 {size:,} 个数，而权重只有 {held:,} 个</translation>
    </message>
    <message>
        <source>bytes between tensors are described by none, from byte {place:,}</source>
        <translation>从第 {place:,} 字节起，张量之间有不属于任何张量的字节</translation>
    </message>
    <message>
        <source>calibration error</source>
        <translation>校准误差</translation>
    </message>
    <message>
        <source>can&apos;t be EVA for this objective. Choose the usual ones</source>
        <translation>在这个训练目标下不能为 EVA。请选择常用的初始值</translation>
    </message>
    <message>
        <source>can&apos;t be orthogonal beside frozen weights in 4 bits. Choose the usual ones</source>
        <translation>在冻结权重为 4 位时不能使用正交初始值。请选择常用初始值</translation>
    </message>
    <message>
        <source>can&apos;t be used here, because the bigger model doesn&apos;t know them. Leave it empty</source>
        <translation>在这里不能使用，因为大模型不认识这些新词。请留空</translation>
    </message>
    <message>
        <source>check, show, convert, split and mix data</source>
        <translation>检查、查看、转换、拆分和混合数据</translation>
    </message>
    <message>
        <source>chrF</source>
        <translation>chrF</translation>
    </message>
    <message>
        <source>classes</source>
        <translation>类别</translation>
    </message>
    <message>
        <source>column &quot;{columns}&quot;: {problem}.</source>
        <translation>列“{columns}”：{problem}。</translation>
    </message>
    <message>
        <source>column &quot;{column}&quot;: {what}.</source>
        <translation>列“{column}”：{what}。</translation>
    </message>
    <message>
        <source>columns that other rows don&apos;t have: {names}.</source>
        <translation>有其他行没有的列：{names}。</translation>
    </message>
    <message>
        <source>columns that other rows have are missing: {names}.</source>
        <translation>缺少其他行都有的列：{names}。</translation>
    </message>
    <message>
        <source>commit, tag or branch (the newest)</source>
        <translation>提交、标签或分支（最新）</translation>
    </message>
    <message>
        <source>compare a downloaded model with the hashes of the hub</source>
        <translation>将已下载的模型与模型站的哈希值比较</translation>
    </message>
    <message>
        <source>compare answers of a run without knowing whose they are</source>
        <translation>在不知道出处的情况下比较一个运行的回答</translation>
    </message>
    <message>
        <source>comparing with the hashes of the hub</source>
        <translation>正在与模型站的哈希值比对</translation>
    </message>
    <message>
        <source>contains no JSON object, or its end is missing</source>
        <translation>不含 JSON 对象，或结尾缺失</translation>
    </message>
    <message>
        <source>control token</source>
        <translation>控制词元</translation>
    </message>
    <message>
        <source>converting</source>
        <translation>正在转换</translation>
    </message>
    <message>
        <source>copying</source>
        <translation>正在复制</translation>
    </message>
    <message>
        <source>correlation</source>
        <translation>相关系数</translation>
    </message>
    <message>
        <source>cut answers</source>
        <translation>被截断的回答</translation>
    </message>
    <message>
        <source>data files, or names of data sets of the library</source>
        <translation>数据文件，或数据集库中数据集的名称</translation>
    </message>
    <message>
        <source>data.context_length: the longest row has {longest} tokens, but {path} supports only {positions}.</source>
        <translation>data.context_length：最长的一行有 {longest} 个词元，但 {path} 只支持 {positions} 个。</translation>
    </message>
    <message>
        <source>depends on the data</source>
        <translation>取决于数据</translation>
    </message>
    <message>
        <source>difference, 95% interval</source>
        <translation>差值，95% 区间</translation>
    </message>
    <message>
        <source>download a model, or continue an interrupted download</source>
        <translation>下载模型，或继续中断的下载</translation>
    </message>
    <message>
        <source>downloading</source>
        <translation>正在下载</translation>
    </message>
    <message>
        <source>epochs</source>
        <translation>轮数</translation>
    </message>
    <message>
        <source>evaluation data, which must not be trained on</source>
        <translation>评估数据，不能用于训练</translation>
    </message>
    <message>
        <source>evaluation: {path}</source>
        <translation>评估结果：{path}</translation>
    </message>
    <message>
        <source>every expected answer is a JSON object or list</source>
        <translation>所有预期答案都是 JSON 对象或列表</translation>
    </message>
    <message>
        <source>every expected answer is short and holds a number</source>
        <translation>所有预期答案都很短且含有数字</translation>
    </message>
    <message>
        <source>exact match</source>
        <translation>完全匹配</translation>
    </message>
    <message>
        <source>expected</source>
        <translation>预期</translation>
    </message>
    <message>
        <source>expected answers are long texts</source>
        <translation>预期回答是较长的文本</translation>
    </message>
    <message>
        <source>expected answers are short</source>
        <translation>预期答案较短</translation>
    </message>
    <message>
        <source>expected answers are texts</source>
        <translation>预期答案是文本</translation>
    </message>
    <message>
        <source>expected answers have no spaces between words</source>
        <translation>预期回答的词之间没有空格</translation>
    </message>
    <message>
        <source>fast kernels</source>
        <translation>快速内核</translation>
    </message>
    <message>
        <source>find problems in data files</source>
        <translation>查找数据文件中的问题</translation>
    </message>
    <message>
        <source>finished after 1 step</source>
        <translation>已完成，共 1 步</translation>
    </message>
    <message>
        <source>fits</source>
        <translation>适合</translation>
    </message>
    <message>
        <source>folder or name of an instruct model</source>
        <translation>指令模型的文件夹或名称</translation>
    </message>
    <message>
        <source>folder or name of the base model</source>
        <translation>基座模型的文件夹或名称</translation>
    </message>
    <message>
        <source>folder that is made; without it, one inside the run</source>
        <translation>要新建的文件夹；不指定时放在运行的文件夹中</translation>
    </message>
    <message>
        <source>general questions</source>
        <translation>常识问题</translation>
    </message>
    <message>
        <source>gradients and optimizer</source>
        <translation>梯度与优化器</translation>
    </message>
    <message>
        <source>handing over</source>
        <translation>正在交给其他程序</translation>
    </message>
    <message>
        <source>has fewer than two options</source>
        <translation>的选项少于两个</translation>
    </message>
    <message>
        <source>has no effect where an adapter is continued. Choose the usual ones</source>
        <translation>在继续训练已有适配器时不起作用。请选择常用的初始值</translation>
    </message>
    <message>
        <source>has no effect with 8-bit frozen weights. Switch it off</source>
        <translation>与 8 位冻结权重一起使用时不起作用。请关闭它</translation>
    </message>
    <message>
        <source>has no effect with the loss {loss}. Set it to 0</source>
        <translation>对损失“{loss}”无效。请设为 0</translation>
    </message>
    <message>
        <source>has no effect: {path} is the only file with a weight. Give another file one too, or set it to 0</source>
        <translation>不起作用：只有 {path} 设了权重。请给另一个文件也设权重，或设为 0</translation>
    </message>
    <message>
        <source>has nothing to train without new words. Add some, or choose Frozen</source>
        <translation>没有新词就没有可训练的内容。请添加新词，或选择“冻结”</translation>
    </message>
    <message>
        <source>hashing</source>
        <translation>正在计算哈希</translation>
    </message>
    <message>
        <source>held-out answers</source>
        <translation>留出的回答</translation>
    </message>
    <message>
        <source>held-out pairs</source>
        <translation>留出的偏好对</translation>
    </message>
    <message>
        <source>held-out reward</source>
        <translation>留出奖励</translation>
    </message>
    <message>
        <source>holds labels, which only the objective Classes or numbers learns from</source>
        <translation>含有标签，只有“类别或数值”这一目标会从中学习</translation>
    </message>
    <message>
        <source>holds {num} numbers for {num_ids} tokens</source>
        <translation>有 {num} 个数，而词元有 {num_ids} 个</translation>
    </message>
    <message>
        <source>holds {word} twice</source>
        <translation>重复包含 {word}</translation>
    </message>
    <message>
        <source>how many at most (30)</source>
        <translation>最多显示多少个（30）</translation>
    </message>
    <message>
        <source>hub id of a model, such as org/name</source>
        <translation>模型的中心 ID，例如 org/name</translation>
    </message>
    <message>
        <source>in the names of models</source>
        <translation>模型名称中的文字</translation>
    </message>
    <message>
        <source>in the safetensors header, {reason}</source>
        <translation>safetensors 文件头中{reason}</translation>
    </message>
    <message>
        <source>install or repair without asking</source>
        <translation>不询问直接安装或修复</translation>
    </message>
    <message>
        <source>is a folder, not a file</source>
        <translation>是文件夹，不是文件</translation>
    </message>
    <message>
        <source>is a link or a device, not a file</source>
        <translation>是链接或设备，不是文件</translation>
    </message>
    <message>
        <source>is a link to a file that is missing</source>
        <translation>是一个链接，但它指向的文件不存在</translation>
    </message>
    <message>
        <source>is locked by a password</source>
        <translation>已用密码锁定</translation>
    </message>
    <message>
        <source>is no file name that every system takes</source>
        <translation>不是所有系统都接受的文件名</translation>
    </message>
    <message>
        <source>is not a setting of this version. Did you mean {name}?</source>
        <translation>不是此版本的设置。您是不是想写 {name}？</translation>
    </message>
    <message>
        <source>is not an ordinary file</source>
        <translation>不是普通文件</translation>
    </message>
    <message>
        <source>it cuts a text into words in a way of its own</source>
        <translation>它切分文本的方式不受支持</translation>
    </message>
    <message>
        <source>it has more tokens than the model</source>
        <translation>它的词元比模型多</translation>
    </message>
    <message>
        <source>it is of the kind {kind}</source>
        <translation>它属于 {kind} 类型</translation>
    </message>
    <message>
        <source>it merges nothing</source>
        <translation>它没有任何合并规则</translation>
    </message>
    <message>
        <source>it prepares a text by {step}</source>
        <translation>它用 {step} 预处理文本</translation>
    </message>
    <message>
        <source>it was saved by another run</source>
        <translation>由另一次运行保存</translation>
    </message>
    <message>
        <source>its MLPs cap or scale their gates in another way</source>
        <translation>它的 MLP 以另一种方式限制或缩放门控</translation>
    </message>
    <message>
        <source>its attention has a sliding window</source>
        <translation>它的注意力使用滑动窗口</translation>
    </message>
    <message>
        <source>its attention is in other layers</source>
        <translation>其注意力层的位置不同</translation>
    </message>
    <message>
        <source>its attention is scaled in another way</source>
        <translation>它的注意力缩放方式不同</translation>
    </message>
    <message>
        <source>its embedding has another scale</source>
        <translation>它的嵌入使用了不同的缩放</translation>
    </message>
    <message>
        <source>its layers differ in {settings}</source>
        <translation>其各层的 {settings} 不同</translation>
    </message>
    <message>
        <source>its layers see other chunks of a text</source>
        <translation>它的各层看到的文本分块不同</translation>
    </message>
    <message>
        <source>its logits are capped</source>
        <translation>它的 logit 有上限</translation>
    </message>
    <message>
        <source>its mrope_section has {pairs} pairs, but its heads have {numbers} numbers</source>
        <translation>其 mrope_section 有 {pairs} 对，但注意力头只有 {numbers} 个数</translation>
    </message>
    <message>
        <source>its positions turn in another way</source>
        <translation>其位置编码的旋转方式不同</translation>
    </message>
    <message>
        <source>its queries and keys have no norms</source>
        <translation>它的查询和键没有归一化</translation>
    </message>
    <message>
        <source>its queries are made in another way</source>
        <translation>它的查询的计算方式不同</translation>
    </message>
    <message>
        <source>its sliding windows are in other layers</source>
        <translation>它的滑动窗口位于其他层</translation>
    </message>
    <message>
        <source>keep rows with the same value here on one side</source>
        <translation>此列值相同的行放在同一边</translation>
    </message>
    <message>
        <source>keep what the model finds likely at each token, to learn from (kd)</source>
        <translation>保存模型在每个词元处认为可能的词元，供学习使用（kd）</translation>
    </message>
    <message>
        <source>kind of the model, such as qwen3</source>
        <translation>模型类型，例如 qwen3</translation>
    </message>
    <message>
        <source>less than {nats} nats</source>
        <translation>不到 {nats} 纳特</translation>
    </message>
    <message>
        <source>let a local model write questions and answers about documents</source>
        <translation>让本地模型根据文档生成问答和答案</translation>
    </message>
    <message>
        <source>let everybody see what --push uploads</source>
        <translation>让所有人可见 --push 上传的内容</translation>
    </message>
    <message>
        <source>list deleted runs and models</source>
        <translation>列出已删除的运行和模型</translation>
    </message>
    <message>
        <source>list the data sets of the library</source>
        <translation>列出数据集库中的数据集</translation>
    </message>
    <message>
        <source>list the models on this computer</source>
        <translation>列出这台电脑上的模型</translation>
    </message>
    <message>
        <source>llama.cpp adds no adapter to the weight {name}.</source>
        <translation>llama.cpp 不会给权重 {name} 加上适配器。</translation>
    </message>
    <message>
        <source>llama.cpp can&apos;t add this adapter to a model: {name} is more than two matrices of a layer.</source>
        <translation>llama.cpp 无法把此适配器加到模型上：{name} 不只是某一层的两个矩阵。</translation>
    </message>
    <message>
        <source>llama.cpp can&apos;t load the file</source>
        <translation>llama.cpp 无法加载该文件</translation>
    </message>
    <message>
        <source>llama.cpp chooses its experts, or weighs what they answer, by another rule</source>
        <translation>llama.cpp 按另一种规则选择专家或给专家的结果加权</translation>
    </message>
    <message>
        <source>llama.cpp cuts scripts with combining marks, such as Hindi, into other tokens. Other texts are the same.</source>
        <translation>对带组合符号的文字（如印地语），llama.cpp 切分出的词元不同。其他文本则相同。</translation>
    </message>
    <message>
        <source>llama.cpp cuts {text!r} into other tokens</source>
        <translation>llama.cpp 把 {text!r} 切分成不同的词元</translation>
    </message>
    <message>
        <source>llama.cpp expects an expert that every token goes through, which this model doesn&apos;t have</source>
        <translation>llama.cpp 要求有一个每个词元都会经过的专家，而这个模型没有</translation>
    </message>
    <message>
        <source>llama.cpp expects experts in other layers than this model has them in</source>
        <translation>llama.cpp 要求专家所在的层与这个模型不同</translation>
    </message>
    <message>
        <source>llama.cpp has no {kind} adapters.</source>
        <translation>llama.cpp 不支持 {kind} 适配器。</translation>
    </message>
    <message>
        <source>llama.cpp refuses a prompt: {reason}</source>
        <translation>llama.cpp 拒绝了一个提示词：{reason}</translation>
    </message>
    <message>
        <source>llama.cpp renders the chat template in another way</source>
        <translation>llama.cpp 渲染对话模板的结果不同</translation>
    </message>
    <message>
        <source>llama.cpp stretches positions in another way, which changes the answers: {agreement} of the next tokens are the same as in the trained model.</source>
        <translation>llama.cpp 拉伸位置的方式不同，会改变回答：只有 {agreement} 的下一个词元与训练后的模型相同。</translation>
    </message>
    <message>
        <source>loss</source>
        <translation>损失</translation>
    </message>
    <message>
        <source>macro F1</source>
        <translation>宏平均 F1</translation>
    </message>
    <message>
        <source>make each row a chat of messages</source>
        <translation>把每一行变成由消息组成的对话</translation>
    </message>
    <message>
        <source>marker of the short folder</source>
        <translation>短路径文件夹的标记</translation>
    </message>
    <message>
        <source>matches the pattern</source>
        <translation>匹配正则表达式</translation>
    </message>
    <message>
        <source>measured</source>
        <translation>指标</translation>
    </message>
    <message>
        <source>memory used by {program}</source>
        <translation>占用显存：{program}</translation>
    </message>
    <message>
        <source>merged: base model with the adapter in its weights; gguf: the same in one file for llama.cpp</source>
        <translation>merged：适配器并入权重的基础模型；gguf：同样的内容，供 llama.cpp 使用的单个文件</translation>
    </message>
    <message>
        <source>merging</source>
        <translation>正在合并</translation>
    </message>
    <message>
        <source>message {number} holds something other than text</source>
        <translation>第 {number} 条消息含有文本以外的内容</translation>
    </message>
    <message>
        <source>message {number} holds something other than text, of the type &quot;{kind}&quot;</source>
        <translation>第 {number} 条消息含有文本以外的内容，类型为“{kind}”</translation>
    </message>
    <message>
        <source>message {number} is a system message, which belongs at the beginning.</source>
        <translation>第 {number} 条是系统消息，应放在开头。</translation>
    </message>
    <message>
        <source>message {number} is a tool result that nothing asked for.</source>
        <translation>第 {number} 条是没有对应调用的工具结果。</translation>
    </message>
    <message>
        <source>messages {first} and {second} have the same role.</source>
        <translation>第 {first} 条和第 {second} 条消息的角色相同。</translation>
    </message>
    <message>
        <source>method</source>
        <translation>训练方法</translation>
    </message>
    <message>
        <source>missing</source>
        <translation>缺失</translation>
    </message>
    <message>
        <source>mix rows of several files into one</source>
        <translation>把多个文件的行混合成一个文件</translation>
    </message>
    <message>
        <source>model</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>model.new_tokens: the adapter to start from knows other new words: {words}.</source>
        <translation>model.new_tokens：要继续训练的适配器使用的是另一组新词：{words}。</translation>
    </message>
    <message>
        <source>more text follows</source>
        <translation>后面还有多余文本</translation>
    </message>
    <message>
        <source>most rows to answer; the loss is measured on more</source>
        <translation>最多回答多少行；损失会在更多的行上测量</translation>
    </message>
    <message>
        <source>most tokens of an answer</source>
        <translation>每个回答的最大词元数</translation>
    </message>
    <message>
        <source>move a model to the trash</source>
        <translation>将模型移到回收站</translation>
    </message>
    <message>
        <source>move a run with its checkpoints and adapter to the trash</source>
        <translation>把运行连同检查点和适配器移到回收站</translation>
    </message>
    <message>
        <source>must be &quot;answer&quot; for the loss LUSPO</source>
        <translation>在使用损失 LUSPO 时必须为 “answer”</translation>
    </message>
    <message>
        <source>must be &quot;{all_linear}&quot; or a list of module names</source>
        <translation>必须是“{all_linear}”或模块名列表</translation>
    </message>
    <message>
        <source>must be &quot;{all}&quot; or a list of parts</source>
        <translation>必须是“{all}”或部分名称的列表</translation>
    </message>
    <message>
        <source>must be 0 beside a weight. {path} can have one of both</source>
        <translation>设了权重时必须为 0。{path} 只能二选一</translation>
    </message>
    <message>
        <source>must be LoRA for the objective {objective}</source>
        <translation>在目标为{objective}时必须是 LoRA</translation>
    </message>
    <message>
        <source>must be New words only or All, so that the new words (model.new_tokens) are learned</source>
        <translation>必须是“仅新词”或“全部”，这样才能学会新词（model.new_tokens）</translation>
    </message>
    <message>
        <source>must be Solution steps with labels for this objective</source>
        <translation>对此目标必须是“带标签的解题步骤”</translation>
    </message>
    <message>
        <source>must be Text with label for this objective</source>
        <translation>在此目标下必须是“带标签的文本”</translation>
    </message>
    <message>
        <source>must be a JSON object</source>
        <translation>必须是 JSON 对象</translation>
    </message>
    <message>
        <source>must be a file with a JSON schema. Choose one</source>
        <translation>必须是 JSON 模式文件。请选择一个</translation>
    </message>
    <message>
        <source>must be a file. Choose one</source>
        <translation>必须是一个文件。请选择</translation>
    </message>
    <message>
        <source>must be a finite number</source>
        <translation>必须是有限的数</translation>
    </message>
    <message>
        <source>must be a language. Choose one</source>
        <translation>必须是一种语言。请选择</translation>
    </message>
    <message>
        <source>must be a list of at least one</source>
        <translation>必须是至少有一项的列表</translation>
    </message>
    <message>
        <source>must be a list of names</source>
        <translation>必须是名称列表</translation>
    </message>
    <message>
        <source>must be a list of options, at most {most}, each a text</source>
        <translation>必须是选项列表，最多 {most} 项，每项都是文本</translation>
    </message>
    <message>
        <source>must be a list of pairs, a question and its answer</source>
        <translation>必须是由问题和回答组成的成对列表</translation>
    </message>
    <message>
        <source>must be a list of texts, the steps of a solution</source>
        <translation>必须是文本列表，即解题的各个步骤</translation>
    </message>
    <message>
        <source>must be a list of token numbers</source>
        <translation>必须是词元编号列表</translation>
    </message>
    <message>
        <source>must be a list of tokens</source>
        <translation>必须是词元列表</translation>
    </message>
    <message>
        <source>must be a list of true or false, for right and wrong steps</source>
        <translation>必须是由 true 或 false 组成的列表，表示步骤的对错</translation>
    </message>
    <message>
        <source>must be a number above 0</source>
        <translation>必须是大于 0 的数</translation>
    </message>
    <message>
        <source>must be a number format such as bfloat16</source>
        <translation>必须是数值格式，例如 bfloat16</translation>
    </message>
    <message>
        <source>must be a number of 64 bits</source>
        <translation>必须是 64 位以内的数</translation>
    </message>
    <message>
        <source>must be a regular expression. Enter one</source>
        <translation>必须是正则表达式。请输入</translation>
    </message>
    <message>
        <source>must be a small positive number</source>
        <translation>必须是很小的正数</translation>
    </message>
    <message>
        <source>must be a template, or a list of templates with names</source>
        <translation>必须是模板，或带名称的模板列表</translation>
    </message>
    <message>
        <source>must be a text</source>
        <translation>必须是文本</translation>
    </message>
    <message>
        <source>must be a token</source>
        <translation>必须是词元</translation>
    </message>
    <message>
        <source>must be a whole number of at least {least}</source>
        <translation>必须是不小于 {least} 的整数</translation>
    </message>
    <message>
        <source>must be above 0</source>
        <translation>必须大于 0</translation>
    </message>
    <message>
        <source>must be above 0 for the loss EXO</source>
        <translation>使用 EXO 损失时必须大于 0</translation>
    </message>
    <message>
        <source>must be above 0 where bad answers count for nothing</source>
        <translation>在差的回答不计入时必须大于 0</translation>
    </message>
    <message>
        <source>must be above 0, or empty for the usual value</source>
        <translation>必须大于 0，留空则使用常用值</translation>
    </message>
    <message>
        <source>must be above 1 plus Clipping upward, or 0 for no bound</source>
        <translation>必须大于 1 加上“向上裁剪”，或填 0 表示不设上限</translation>
    </message>
    <message>
        <source>must be an object</source>
        <translation>必须是对象</translation>
    </message>
    <message>
        <source>must be an object of tokens by their numbers</source>
        <translation>必须是以编号为键的词元对象</translation>
    </message>
    <message>
        <source>must be another model than the base model</source>
        <translation>必须是基础模型以外的另一个模型</translation>
    </message>
    <message>
        <source>must be at least 1, or empty for all rows of {path}</source>
        <translation>至少为 1；留空则使用 {path} 的全部行</translation>
    </message>
    <message>
        <source>must be at least two different names, or none</source>
        <translation>必须至少有两个不同的名称，或者留空</translation>
    </message>
    <message>
        <source>must be at most {most} % for all files together</source>
        <translation>所有文件合计最多 {most} %</translation>
    </message>
    <message>
        <source>must be at most {most} files. Join some of them</source>
        <translation>最多 {most} 个文件。请合并其中一些</translation>
    </message>
    <message>
        <source>must be at most {most} prompts</source>
        <translation>最多 {most} 个提示词</translation>
    </message>
    <message>
        <source>must be at most {most} rewards</source>
        <translation>最多 {most} 个奖励</translation>
    </message>
    <message>
        <source>must be at most {most} words</source>
        <translation>最多 {most} 个词</translation>
    </message>
    <message>
        <source>must be auto, cpu, cuda or cuda:1</source>
        <translation>必须是 auto、cpu、cuda 或 cuda:1</translation>
    </message>
    <message>
        <source>must be between 0 and 1</source>
        <translation>必须在 0 和 1 之间</translation>
    </message>
    <message>
        <source>must be empty for {kind}. New words are learned by LoRA or full fine-tuning</source>
        <translation>对 {kind} 必须留空。新词由 LoRA 或全量微调学习</translation>
    </message>
    <message>
        <source>must be empty where labels are numbers</source>
        <translation>标签为数值时必须留空</translation>
    </message>
    <message>
        <source>must be even for orthogonal initial values</source>
        <translation>使用正交初始值时必须是偶数</translation>
    </message>
    <message>
        <source>must be one of {choices}</source>
        <translation>必须是以下之一：{choices}</translation>
    </message>
    <message>
        <source>must be the folder of a reward model. Choose one</source>
        <translation>必须是奖励模型的文件夹。请选择</translation>
    </message>
    <message>
        <source>must be the full path of a folder</source>
        <translation>必须是文件夹的完整路径</translation>
    </message>
    <message>
        <source>must be the number of a token</source>
        <translation>必须是词元编号</translation>
    </message>
    <message>
        <source>must be true or false</source>
        <translation>必须是 true 或 false</translation>
    </message>
    <message>
        <source>must be words of at most {most} characters, not {word}</source>
        <translation>每个词最多 {most} 个字符，{word} 太长</translation>
    </message>
    <message>
        <source>must be written as numbers of layers, such as 0-7, 20</source>
        <translation>必须写成层的编号，例如 0-7, 20</translation>
    </message>
    <message>
        <source>must be written as: module = alpha, such as q_proj = 64, with an alpha above 0</source>
        <translation>必须写成：模块 = alpha，例如 q_proj = 64，并且 alpha 大于 0</translation>
    </message>
    <message>
        <source>must be written as: module = rank, such as q_proj = 32. Ranks go from 1 to {most}</source>
        <translation>必须写成：模块 = 秩，例如 q_proj = 32。秩的范围是 1 到 {most}</translation>
    </message>
    <message>
        <source>must be {wanted} for KTO, which rates answers</source>
        <translation>对 KTO 必须为“{wanted}”，因为它评价的是回答</translation>
    </message>
    <message>
        <source>must begin with {schemes}</source>
        <translation>必须以 {schemes} 开头</translation>
    </message>
    <message>
        <source>must contain a host name and a valid port number, if any</source>
        <translation>必须包含主机名，端口号（如有）必须有效</translation>
    </message>
    <message>
        <source>must end with the port, as in http://proxy.example:8080</source>
        <translation>必须以端口号结尾，例如 http://proxy.example:8080</translation>
    </message>
    <message>
        <source>must have one label for each step. Labels: {num}, steps: {num_steps}</source>
        <translation>每个步骤都必须有一个标签。标签：{num} 个，步骤：{num_steps} 个</translation>
    </message>
    <message>
        <source>must hold a single label</source>
        <translation>必须是单个标签</translation>
    </message>
    <message>
        <source>must hold embeddings, so that the new words are learned</source>
        <translation>必须包含 embeddings，这样才能学会新词</translation>
    </message>
    <message>
        <source>must name a device</source>
        <translation>必须指定设备</translation>
    </message>
    <message>
        <source>must name at least one module</source>
        <translation>至少要指定一个模块</translation>
    </message>
    <message>
        <source>must name at least one part</source>
        <translation>至少要指定一个部分</translation>
    </message>
    <message>
        <source>must name one device. Several are not supported yet</source>
        <translation>只能指定一个设备，暂不支持多个</translation>
    </message>
    <message>
        <source>must not be 0. Remove the reward instead</source>
        <translation>不能为 0。请改为删除该奖励</translation>
    </message>
    <message>
        <source>must not be above the longest answer</source>
        <translation>不能大于最长回答</translation>
    </message>
    <message>
        <source>must not be by group for RLOO, whose baseline leaves one answer out. Choose another</source>
        <translation>在 RLOO 中不能按组，因为其基线会排除一个回答。请选择其他值</translation>
    </message>
    <message>
        <source>must not begin or end with a space: {word!r}</source>
        <translation>开头和结尾不能有空格：{word!r}</translation>
    </message>
    <message>
        <source>must not contain ? or #</source>
        <translation>不能包含 ? 或 #</translation>
    </message>
    <message>
        <source>must not contain a NUL character</source>
        <translation>不能包含 NUL 字符</translation>
    </message>
    <message>
        <source>must not contain spaces</source>
        <translation>不能包含空格</translation>
    </message>
    <message>
        <source>must not hold an empty name</source>
        <translation>不能包含空名称</translation>
    </message>
    <message>
        <source>must not hold an empty word</source>
        <translation>不能包含空词</translation>
    </message>
    <message>
        <source>name</source>
        <translation>名称</translation>
    </message>
    <message>
        <source>name of a model, as `tunesmith models list` shows it, or its folder</source>
        <translation>模型名称（如 `tunesmith models list` 所示）或其文件夹</translation>
    </message>
    <message>
        <source>name of the data set</source>
        <translation>数据集的名称</translation>
    </message>
    <message>
        <source>name or id of a run or model, as `tunesmith trash` lists it</source>
        <translation>运行或模型的名称或 ID，与 `tunesmith trash` 列出的一致</translation>
    </message>
    <message>
        <source>names {chosen} experts of each token, but {wanted} in all</source>
        <translation>写明每个词元使用 {chosen} 个专家，但总共只有 {wanted} 个</translation>
    </message>
    <message>
        <source>names {wanted} experts, but the weights hold {held}</source>
        <translation>写有 {wanted} 个专家，但权重中只有 {held} 个</translation>
    </message>
    <message>
        <source>names {wanted} layers, but the weights hold {held}</source>
        <translation>写明有 {wanted} 层，但权重中有 {held} 层</translation>
    </message>
    <message>
        <source>nearly the same as the evaluation row at {place}.</source>
        <translation>与评估数据中 {place} 的行几乎相同。</translation>
    </message>
    <message>
        <source>nearly the same as {place}.</source>
        <translation>与 {place} 几乎相同。</translation>
    </message>
    <message>
        <source>needs a file without a share, which sets the length of an epoch</source>
        <translation>需要一个没有占比的文件来决定每轮的长度</translation>
    </message>
    <message>
        <source>needs evaluation data</source>
        <translation>需要评估数据</translation>
    </message>
    <message>
        <source>needs the number format bfloat16 for the calculations, not {format}</source>
        <translation>要求计算也使用 bfloat16 格式，而不是 {format}</translation>
    </message>
    <message>
        <source>no model can be made of config.json and the weights</source>
        <translation>无法用 config.json 和权重建立模型</translation>
    </message>
    <message>
        <source>no safetensors header in a file of {size:,} bytes</source>
        <translation>文件（{size:,} 字节）中没有 safetensors 文件头</translation>
    </message>
    <message>
        <source>no splits are listed.</source>
        <translation>没有列出任何划分。</translation>
    </message>
    <message>
        <source>no tables are listed.</source>
        <translation>没有列出任何表格。</translation>
    </message>
    <message>
        <source>not allowed (260 characters at most)</source>
        <translation>不允许（最多 260 个字符）</translation>
    </message>
    <message>
        <source>not allowed with argument %s</source>
        <translation>不能与参数 %s 同时使用</translation>
    </message>
    <message>
        <source>not an object</source>
        <translation>不是对象</translation>
    </message>
    <message>
        <source>not created by Tunesmith</source>
        <translation>不是 Tunesmith 创建的</translation>
    </message>
    <message>
        <source>not installed</source>
        <translation>未安装</translation>
    </message>
    <message>
        <source>not needed here: {reason}</source>
        <translation>此处不需要：{reason}</translation>
    </message>
    <message>
        <source>not tried</source>
        <translation>未尝试</translation>
    </message>
    <message>
        <source>not used ({count}): {path} ({reason})</source>
        <translation>未使用（{count} 个）：{path}（{reason}）</translation>
    </message>
    <message>
        <source>not valid JSON: expected &quot;{character}&quot;, found {what}.</source>
        <translation>不是有效的 JSON：应为“{character}”，实际是{what}。</translation>
    </message>
    <message>
        <source>number</source>
        <translation>编号</translation>
    </message>
    <message>
        <source>number format of a GGUF file</source>
        <translation>GGUF 文件的数值格式</translation>
    </message>
    <message>
        <source>number of rows for evaluation instead</source>
        <translation>改为指定用于评估的行数</translation>
    </message>
    <message>
        <source>number of rows to show (5)</source>
        <translation>要显示的行数（5）</translation>
    </message>
    <message>
        <source>ok</source>
        <translation>正常</translation>
    </message>
    <message>
        <source>on request</source>
        <translation>需申请</translation>
    </message>
    <message>
        <source>one of the arguments %s is required</source>
        <translation>需要以下参数之一：%s</translation>
    </message>
    <message>
        <source>one of the two adapters has embeddings or other modules that are trained whole</source>
        <translation>两个适配器中有一个完整训练了嵌入层或其他模块</translation>
    </message>
    <message>
        <source>only 3.11, 3.12 and 3.13 are supported</source>
        <translation>仅支持 3.11、3.12 和 3.13</translation>
    </message>
    <message>
        <source>only just</source>
        <translation>勉强</translation>
    </message>
    <message>
        <source>only show how the votes stand</source>
        <translation>只显示投票结果</translation>
    </message>
    <message>
        <source>only show the files and their sizes</source>
        <translation>只显示文件及其大小</translation>
    </message>
    <message>
        <source>only so many of the most likely tokens; 0 for all</source>
        <translation>只从最可能的若干个词元中选择；0 表示全部</translation>
    </message>
    <message>
        <source>only the most likely tokens that together have this probability; 1 for all</source>
        <translation>只从累计概率达到该值的最可能词元中选择；1 表示全部</translation>
    </message>
    <message>
        <source>only the problem that this check found</source>
        <translation>只处理这项检查发现的问题</translation>
    </message>
    <message>
        <source>only tokens with at least this share of the most likely one&apos;s probability; 0 for all</source>
        <translation>只选择概率不低于最可能词元概率乘以该比例的词元；0 表示全部</translation>
    </message>
    <message>
        <source>open</source>
        <translation>开放</translation>
    </message>
    <message>
        <source>options</source>
        <translation>选项</translation>
    </message>
    <message>
        <source>other layers than usual know no positions</source>
        <translation>不使用位置编码的层与通常不同</translation>
    </message>
    <message>
        <source>other layers than usual share keys and values</source>
        <translation>共享键和值的层与通常不同</translation>
    </message>
    <message>
        <source>p</source>
        <translation>p 值</translation>
    </message>
    <message>
        <source>pad_token_id is {pad}, but the embedding in the weights has {rows} rows</source>
        <translation>pad_token_id 为 {pad}，而权重中的词嵌入只有 {rows} 行</translation>
    </message>
    <message>
        <source>parameters in billions, at least</source>
        <translation>参数量下限（十亿）</translation>
    </message>
    <message>
        <source>parameters in billions, at most</source>
        <translation>参数量上限（十亿）</translation>
    </message>
    <message>
        <source>part of conda</source>
        <translation>属于 conda</translation>
    </message>
    <message>
        <source>perplexity: {files}</source>
        <translation>困惑度：{files}</translation>
    </message>
    <message>
        <source>pieces</source>
        <translation>片段数</translation>
    </message>
    <message>
        <source>positional arguments</source>
        <translation>位置参数</translation>
    </message>
    <message>
        <source>previous</source>
        <translation>上一个</translation>
    </message>
    <message>
        <source>print JSON for programs</source>
        <translation>输出供程序读取的 JSON</translation>
    </message>
    <message>
        <source>print JSON for programs, with every package</source>
        <translation>输出供程序读取的 JSON，列出每个软件包</translation>
    </message>
    <message>
        <source>print the settings of a run</source>
        <translation>输出运行的设置</translation>
    </message>
    <message>
        <source>print the version</source>
        <translation>输出版本</translation>
    </message>
    <message>
        <source>probably {language}.</source>
        <translation>可能是 {language}。</translation>
    </message>
    <message>
        <source>problems to hold out, in a file beside it</source>
        <translation>留出的题目数，写入旁边的文件</translation>
    </message>
    <message>
        <source>problems to train on</source>
        <translation>用于训练的题目数</translation>
    </message>
    <message>
        <source>publishing</source>
        <translation>正在完成</translation>
    </message>
    <message>
        <source>questions per passage at most (3)</source>
        <translation>每个段落最多生成的问题数（3）</translation>
    </message>
    <message>
        <source>rated on the right side</source>
        <translation>判断方向正确</translation>
    </message>
    <message>
        <source>rated on the right side {share}  margin {margin}</source>
        <translation>判断方向正确 {share}  差距 {margin}</translation>
    </message>
    <message>
        <source>read every installed byte to find problems</source>
        <translation>读取每个已安装的字节来查找问题</translation>
    </message>
    <message>
        <source>read every installed byte, instead of sizes and times</source>
        <translation>读取每个已安装的字节，而不只看大小和时间</translation>
    </message>
    <message>
        <source>reading</source>
        <translation>读取</translation>
    </message>
    <message>
        <source>remove program and environments, keep runs (Linux)</source>
        <translation>删除程序和环境，保留运行（Linux）</translation>
    </message>
    <message>
        <source>remove without asking</source>
        <translation>不询问直接删除</translation>
    </message>
    <message>
        <source>repair everything without asking</source>
        <translation>不询问直接修复全部问题</translation>
    </message>
    <message>
        <source>replace a file that is already there</source>
        <translation>替换已存在的文件</translation>
    </message>
    <message>
        <source>replace files that are there</source>
        <translation>替换已有的文件</translation>
    </message>
    <message>
        <source>replace the files of a data set of this name</source>
        <translation>替换同名数据集的文件</translation>
    </message>
    <message>
        <source>restored {path}</source>
        <translation>已恢复 {path}</translation>
    </message>
    <message>
        <source>resumed from step {step}</source>
        <translation>从第 {step} 步继续</translation>
    </message>
    <message>
        <source>return as soon as the run has started</source>
        <translation>运行一开始就返回</translation>
    </message>
    <message>
        <source>reward</source>
        <translation>奖励</translation>
    </message>
    <message>
        <source>reward in training</source>
        <translation>训练中的奖励</translation>
    </message>
    <message>
        <source>reward margin</source>
        <translation>奖励差</translation>
    </message>
    <message>
        <source>reward models</source>
        <translation>奖励模型</translation>
    </message>
    <message>
        <source>reward {reward}</source>
        <translation>奖励 {reward}</translation>
    </message>
    <message>
        <source>reward {reward} at step {step}</source>
        <translation>第 {step} 步的奖励 {reward}</translation>
    </message>
    <message>
        <source>rewards</source>
        <translation>奖励</translation>
    </message>
    <message>
        <source>right</source>
        <translation>正确</translation>
    </message>
    <message>
        <source>right JSON</source>
        <translation>JSON 正确</translation>
    </message>
    <message>
        <source>right choice</source>
        <translation>选项正确</translation>
    </message>
    <message>
        <source>right class</source>
        <translation>分类正确</translation>
    </message>
    <message>
        <source>right number</source>
        <translation>数字正确</translation>
    </message>
    <message>
        <source>right steps</source>
        <translation>判断正确的步骤</translation>
    </message>
    <message>
        <source>row {row}</source>
        <translation>第 {row} 行</translation>
    </message>
    <message>
        <source>rows of each file at most</source>
        <translation>每个文件最多取多少行</translation>
    </message>
    <message>
        <source>rows of the mixture (as many as there are)</source>
        <translation>混合后的行数（默认取所有可用的行）</translation>
    </message>
    <message>
        <source>rows to show of each problem (5)</source>
        <translation>每个问题显示的行数（5）</translation>
    </message>
    <message>
        <source>run</source>
        <translation>运行</translation>
    </message>
    <message>
        <source>run every check and test</source>
        <translation>运行全部检查和测试</translation>
    </message>
    <message>
        <source>runs, with checkpoints and adapters</source>
        <translation>运行，含检查点和适配器</translation>
    </message>
    <message>
        <source>save a run in progress now</source>
        <translation>立即保存正在进行的运行</translation>
    </message>
    <message>
        <source>saving</source>
        <translation>保存</translation>
    </message>
    <message>
        <source>say what is missing, or do it step by step</source>
        <translation>说明缺少什么，或逐步完成</translation>
    </message>
    <message>
        <source>says that hidden_size is {hidden}, but the layers in the weights read {read} numbers of a token</source>
        <translation>写明 hidden_size 为 {hidden}，但权重中的各层对每个词元读取 {read} 个数</translation>
    </message>
    <message>
        <source>says that the weights are quantized ({format}), but none of them is</source>
        <translation>声明权重已量化（{format}），但没有任何权重是量化的</translation>
    </message>
    <message>
        <source>search the list that ships with Tunesmith, offline</source>
        <translation>离线搜索 Tunesmith 自带的列表</translation>
    </message>
    <message>
        <source>search the model hub</source>
        <translation>搜索模型站</translation>
    </message>
    <message>
        <source>search, download, list, verify and remove models</source>
        <translation>搜索、下载、列出、校验和移除模型</translation>
    </message>
    <message>
        <source>settings</source>
        <translation>设置</translation>
    </message>
    <message>
        <source>share of each file</source>
        <translation>每个文件的占比</translation>
    </message>
    <message>
        <source>share of rows for evaluation (5)</source>
        <translation>用于评估的行的百分比（5）</translation>
    </message>
    <message>
        <source>sheet of the workbooks among the files</source>
        <translation>文件中工作簿的工作表名称</translation>
    </message>
    <message>
        <source>shim of pyenv</source>
        <translation>pyenv 的垫片</translation>
    </message>
    <message>
        <source>show how rows become trained tokens</source>
        <translation>显示数据行如何变成参与训练的词元</translation>
    </message>
    <message>
        <source>show how two environments differ</source>
        <translation>显示两个环境的差别</translation>
    </message>
    <message>
        <source>show program&apos;s version number and exit</source>
        <translation>显示版本号并退出</translation>
    </message>
    <message>
        <source>show the state of a run</source>
        <translation>显示运行的状态</translation>
    </message>
    <message>
        <source>show this help message and exit</source>
        <translation>显示此帮助并退出</translation>
    </message>
    <message>
        <source>show what would be fetched and written, and write nothing</source>
        <translation>显示将要下载和写入的内容，不写入任何东西</translation>
    </message>
    <message>
        <source>split rows into training and evaluation data, with copies of a row on one side</source>
        <translation>把行拆分为训练数据和评估数据，相同的行放在同一边</translation>
    </message>
    <message>
        <source>start a run and follow it</source>
        <translation>开始一个运行并跟踪它</translation>
    </message>
    <message>
        <source>starting</source>
        <translation>启动</translation>
    </message>
    <message>
        <source>state</source>
        <translation>状态</translation>
    </message>
    <message>
        <source>step</source>
        <translation>步数</translation>
    </message>
    <message>
        <source>step of a checkpoint; 0 for the finished model, or else the newest checkpoint</source>
        <translation>检查点的步数；0 表示训练完成的模型，没有时使用最新的检查点</translation>
    </message>
    <message>
        <source>step {step}</source>
        <translation>第 {step} 步</translation>
    </message>
    <message>
        <source>step {step}/{total}</source>
        <translation>第 {step}/{total} 步</translation>
    </message>
    <message>
        <source>step {step}/{total}  loss {loss}</source>
        <translation>第 {step}/{total} 步  损失 {loss}</translation>
    </message>
    <message>
        <source>step {step}: evaluation loss {loss:.3f}</source>
        <translation>第 {step} 步：评估损失 {loss:.3f}</translation>
    </message>
    <message>
        <source>step {step}: evaluation loss {loss}</source>
        <translation>第 {step} 步：评估损失 {loss}</translation>
    </message>
    <message>
        <source>step {step}: held-out reward {reward}</source>
        <translation>第 {step} 步：留出奖励 {reward}</translation>
    </message>
    <message>
        <source>step {step}: loss {loss:.3f}</source>
        <translation>第 {step} 步：损失 {loss:.3f}</translation>
    </message>
    <message>
        <source>step {step}: {prompt!r} -&gt; {text!r}</source>
        <translation>第 {step} 步：{prompt!r} -&gt; {text!r}</translation>
    </message>
    <message>
        <source>step {step}: {prompt} -&gt; {text}</source>
        <translation>第 {step} 步：{prompt} -&gt; {text}</translation>
    </message>
    <message>
        <source>stop a run after this step and save</source>
        <translation>在当前这一步之后停止运行并保存</translation>
    </message>
    <message>
        <source>stopping ...</source>
        <translation>正在停止 ...</translation>
    </message>
    <message>
        <source>suggest words of the data that could become tokens of their own</source>
        <translation>推荐数据中可以成为单独词元的词</translation>
    </message>
    <message>
        <source>system prompt</source>
        <translation>系统提示词</translation>
    </message>
    <message>
        <source>system prompt; without it, that of the run</source>
        <translation>系统提示词；不指定时使用该次训练的系统提示词</translation>
    </message>
    <message>
        <source>take a data set out of the library; its files stay</source>
        <translation>从数据集库中移除数据集，文件保留不动</translation>
    </message>
    <message>
        <source>tasks of lm-evaluation-harness, separated by commas; their data comes from the hub, and the first use downloads the program after asking</source>
        <translation>lm-evaluation-harness 的任务，用逗号分隔；其数据来自模型站，首次使用时会在询问后下载该程序</translation>
    </message>
    <message>
        <source>temporary files</source>
        <translation>临时文件</translation>
    </message>
    <message>
        <source>tensors overlap at byte {place:,}</source>
        <translation>张量在第 {place:,} 字节处重叠</translation>
    </message>
    <message>
        <source>text encoding of the files</source>
        <translation>文件的文本编码</translation>
    </message>
    <message>
        <source>text_config must be an object, not {value}</source>
        <translation>text_config 必须是对象，而不是 {value}</translation>
    </message>
    <message>
        <source>the .jsonl file to write or continue</source>
        <translation>要写入或继续的 .jsonl 文件</translation>
    </message>
    <message>
        <source>the Arrow file is damaged: {error}.</source>
        <translation>Arrow 文件已损坏：{error}。</translation>
    </message>
    <message>
        <source>the CPU</source>
        <translation>CPU</translation>
    </message>
    <message>
        <source>the GPU</source>
        <translation>GPU</translation>
    </message>
    <message>
        <source>the HTML or PDF file to write (report.html in the run&apos;s folder)</source>
        <translation>要写入的 HTML 或 PDF 文件（默认为运行文件夹中的 report.html）</translation>
    </message>
    <message>
        <source>the NVIDIA driver does not answer</source>
        <translation>NVIDIA 驱动没有响应</translation>
    </message>
    <message>
        <source>the PDF is damaged: {error}.</source>
        <translation>PDF 已损坏：{error}。</translation>
    </message>
    <message>
        <source>the Word document is damaged: {error}.</source>
        <translation>Word 文档已损坏：{error}。</translation>
    </message>
    <message>
        <source>the ZIP archive is damaged: {error}.</source>
        <translation>ZIP 压缩包已损坏：{error}。</translation>
    </message>
    <message>
        <source>the adapter began with {values} and belongs to a changed base model</source>
        <translation>该适配器以 {values} 初始化，对应的是经过修改的基础模型</translation>
    </message>
    <message>
        <source>the adapter has weights for {module}, a layer that the base model lacks</source>
        <translation>适配器含有 {module} 的权重，而基础模型没有这一层</translation>
    </message>
    <message>
        <source>the adapter is for another base model: its weights for {module} have {size} columns or rows, the base model&apos;s weight is {weight}</source>
        <translation>该适配器属于另一个基础模型：它在 {module} 处的权重有 {size} 列或行，而基础模型的权重为 {weight}</translation>
    </message>
    <message>
        <source>the adapter is of the kind {kind}, and only LoRA can be continued</source>
        <translation>该适配器的类型是 {kind}，只有 LoRA 可以继续训练</translation>
    </message>
    <message>
        <source>the adapter rates texts and writes none</source>
        <translation>该适配器只给文本打分，不生成文本</translation>
    </message>
    <message>
        <source>the answer has other tokens here than the ones that were kept</source>
        <translation>回答在这里切分出的词元与保存的不同</translation>
    </message>
    <message>
        <source>the answer is not the file {name}</source>
        <translation>应答不是文件 {name}</translation>
    </message>
    <message>
        <source>the answer is not the part of {name} that was asked for</source>
        <translation>应答不是所请求的 {name} 的部分</translation>
    </message>
    <message>
        <source>the answer is not what a hub sends</source>
        <translation>应答不是模型站的内容</translation>
    </message>
    <message>
        <source>the answer or text to rate; of a solution a step on each line</source>
        <translation>要评判的回答或文本；解答则每行写一个步骤</translation>
    </message>
    <message>
        <source>the answer was shorter than the file {name}</source>
        <translation>应答比文件 {name} 短</translation>
    </message>
    <message>
        <source>the archive holds more than {most:,} files.</source>
        <translation>压缩包中的文件超过 {most:,} 个。</translation>
    </message>
    <message>
        <source>the archive holds two files of the same name.</source>
        <translation>压缩包中有两个同名文件。</translation>
    </message>
    <message>
        <source>the archive is not read: {name} {what}.</source>
        <translation>未读取压缩包：{name} {what}。</translation>
    </message>
    <message>
        <source>the base model has no place for {name}.</source>
        <translation>基础模型中没有 {name} 的位置。</translation>
    </message>
    <message>
        <source>the chat begins with an answer.</source>
        <translation>对话以回答开头。</translation>
    </message>
    <message>
        <source>the chat ends without an answer.</source>
        <translation>对话结尾没有回答。</translation>
    </message>
    <message>
        <source>the chosen and the rejected answer are equal.</source>
        <translation>选中的回答与被拒绝的回答相同。</translation>
    </message>
    <message>
        <source>the document is larger than {most} MiB.</source>
        <translation>文档大于 {most} MiB。</translation>
    </message>
    <message>
        <source>the end of the file</source>
        <translation>文件结尾</translation>
    </message>
    <message>
        <source>the end-of-text token {token} has the number {number}, but the model knows only {rows} tokens</source>
        <translation>文本结束词元 {token} 的编号是 {number}，但模型只认识 {rows} 个词元</translation>
    </message>
    <message>
        <source>the evaluation file to write</source>
        <translation>要写入的评估文件</translation>
    </message>
    <message>
        <source>the expected answers are {count} choices</source>
        <translation>预期答案是 {count} 个选项</translation>
    </message>
    <message>
        <source>the file contains no JSON object</source>
        <translation>文件中没有 JSON 对象</translation>
    </message>
    <message>
        <source>the file has no version</source>
        <translation>文件中没有版本号</translation>
    </message>
    <message>
        <source>the file holds one list for each column. Save it as a list of rows instead, each with all columns (in pandas: orient=&quot;records&quot;).</source>
        <translation>文件为每一列存放一个列表。请改存为由各行组成的列表，每行包含所有列（pandas 中用 orient=&quot;records&quot;）。</translation>
    </message>
    <message>
        <source>the file is larger than {most} MiB</source>
        <translation>文件大于 {most} MiB</translation>
    </message>
    <message>
        <source>the file is not JSON text</source>
        <translation>文件不是 JSON 文本</translation>
    </message>
    <message>
        <source>the file to write</source>
        <translation>要写入的文件</translation>
    </message>
    <message>
        <source>the following arguments are required: %s</source>
        <translation>缺少以下参数：%s</translation>
    </message>
    <message>
        <source>the model before this run</source>
        <translation>本次运行之前的模型</translation>
    </message>
    <message>
        <source>the number {number} is too large</source>
        <translation>数字 {number} 过大</translation>
    </message>
    <message>
        <source>the packed weight {name} has no {part}</source>
        <translation>量化权重 {name} 缺少 {part}</translation>
    </message>
    <message>
        <source>the parts of the packed weight {name} don&apos;t fit together</source>
        <translation>量化权重 {name} 的各部分互不匹配</translation>
    </message>
    <message>
        <source>the pattern</source>
        <translation>正则表达式</translation>
    </message>
    <message>
        <source>the processor</source>
        <translation>处理器</translation>
    </message>
    <message>
        <source>the program&apos;s folder (Linux; {folder})</source>
        <translation>程序的文件夹（Linux；{folder}）</translation>
    </message>
    <message>
        <source>the reason is not known</source>
        <translation>原因不明</translation>
    </message>
    <message>
        <source>the rejected answer is empty.</source>
        <translation>被拒绝的回答为空。</translation>
    </message>
    <message>
        <source>the row has {num_columns:,} columns. The most is {max_columns:,}.</source>
        <translation>该行有 {num_columns:,} 列，上限为 {max_columns:,} 列。</translation>
    </message>
    <message>
        <source>the safetensors header is malformed at the tensor {name}</source>
        <translation>safetensors 文件头在张量 {name} 处格式有误</translation>
    </message>
    <message>
        <source>the same answers as {place}, the other way round.</source>
        <translation>与 {place} 的两个回答相同，但好坏相反。</translation>
    </message>
    <message>
        <source>the same question as {place}, with another answer.</source>
        <translation>与 {place} 的问题相同，但回答不同。</translation>
    </message>
    <message>
        <source>the same seed gives the same answer</source>
        <translation>相同的种子给出相同的回答</translation>
    </message>
    <message>
        <source>the scales {name} are in {format}, which this version can&apos;t read</source>
        <translation>缩放系数 {name} 的格式为 {format}，当前版本无法读取</translation>
    </message>
    <message>
        <source>the settings can&apos;t be used</source>
        <translation>设置无法使用</translation>
    </message>
    <message>
        <source>the tensor {name} has the unknown number format {dtype}</source>
        <translation>张量 {name} 的数值格式 {dtype} 未知</translation>
    </message>
    <message>
        <source>the tensor {name} has {count:,} bytes, which is not what its shape {shape} needs</source>
        <translation>张量 {name} 有 {count:,} 字节，与其形状 {shape} 所需的不符</translation>
    </message>
    <message>
        <source>the text that begins here has no closing quote</source>
        <translation>从此处开始的文本缺少右引号</translation>
    </message>
    <message>
        <source>the tokenizer can&apos;t be read</source>
        <translation>无法读取分词器</translation>
    </message>
    <message>
        <source>the tokenizer can&apos;t split the rows into tokens</source>
        <translation>分词器无法将各行切分为词元</translation>
    </message>
    <message>
        <source>the trained adapter has no place for {name}</source>
        <translation>所训练的适配器中没有 {name} 的位置</translation>
    </message>
    <message>
        <source>the value of {name} is not one that this model can have</source>
        <translation>该模型不支持 {name} 的这个值</translation>
    </message>
    <message>
        <source>the weight {name} is missing</source>
        <translation>缺少权重 {name}</translation>
    </message>
    <message>
        <source>the weight {name} is missing, NaN or infinite.</source>
        <translation>权重 {name} 缺失、为 NaN 或无穷大。</translation>
    </message>
    <message>
        <source>the weights to judge (the newest)</source>
        <translation>要评判的权重（最新的）</translation>
    </message>
    <message>
        <source>the workbook is damaged, or only a part of it was copied.</source>
        <translation>工作簿已损坏，或者只复制了一部分。</translation>
    </message>
    <message>
        <source>the workbook is locked by a password. Save it without one.</source>
        <translation>工作簿有密码保护，请去掉密码后再保存。</translation>
    </message>
    <message>
        <source>their tokenizers differ, first in the token {token} (number {first} and {second})</source>
        <translation>两者的分词器不同，第一个不同的词元是 {token}（编号 {first} 和 {second}）</translation>
    </message>
    <message>
        <source>they are already in the other folder</source>
        <translation>它们已经在另一个文件夹中</translation>
    </message>
    <message>
        <source>they were kept by a model with another tokenizer</source>
        <translation>它们由使用另一种分词器的模型保存</translation>
    </message>
    <message>
        <source>this terminal was opened for this command alone</source>
        <translation>这个终端只为这条命令打开</translation>
    </message>
    <message>
        <source>this type</source>
        <translation>这种类型</translation>
    </message>
    <message>
        <source>times</source>
        <translation>次数</translation>
    </message>
    <message>
        <source>to use it: {command}</source>
        <translation>使用方法：{command}</translation>
    </message>
    <message>
        <source>token</source>
        <translation>词元</translation>
    </message>
    <message>
        <source>tokens of a row at most, with --model (2048)</source>
        <translation>每行最多的词元数，与 --model 一起使用（2048）</translation>
    </message>
    <message>
        <source>tokens of an answer at most (512)</source>
        <translation>每个回答最多的词元数（512）</translation>
    </message>
    <message>
        <source>tokens per answer</source>
        <translation>每个回答的词元数</translation>
    </message>
    <message>
        <source>too large</source>
        <translation>过大</translation>
    </message>
    <message>
        <source>tools</source>
        <translation>工具</translation>
    </message>
    <message>
        <source>total</source>
        <translation>合计</translation>
    </message>
    <message>
        <source>train the bundled example instead of opening the window</source>
        <translation>训练自带的示例，而不打开窗口</translation>
    </message>
    <message>
        <source>train the run of a run folder, or resume it</source>
        <translation>训练一个运行文件夹里的运行，或继续它</translation>
    </message>
    <message>
        <source>train with plain PyTorch, whatever the run&apos;s settings</source>
        <translation>无论运行的设置如何，都用普通 PyTorch 训练</translation>
    </message>
    <message>
        <source>train with plain PyTorch, without fused kernels</source>
        <translation>用普通 PyTorch 训练，不用融合内核</translation>
    </message>
    <message>
        <source>trained</source>
        <translation>训练</translation>
    </message>
    <message>
        <source>trained with</source>
        <translation>训练方法</translation>
    </message>
    <message>
        <source>trained {step} steps in {time}</source>
        <translation>训练了 {step} 步，用时 {time}</translation>
    </message>
    <message>
        <source>training</source>
        <translation>训练</translation>
    </message>
    <message>
        <source>triton and triton-windows are both installed and overwrite each other&apos;s files.</source>
        <translation>triton 和 triton-windows 同时安装，会互相覆盖文件。</translation>
    </message>
    <message>
        <source>unknown</source>
        <translation>未知</translation>
    </message>
    <message>
        <source>unknown argument: {argument}</source>
        <translation>未知参数：{argument}</translation>
    </message>
    <message>
        <source>unknown method</source>
        <translation>未知方法</translation>
    </message>
    <message>
        <source>unrecognized arguments: %s</source>
        <translation>无法识别的参数：%s</translation>
    </message>
    <message>
        <source>uploading</source>
        <translation>正在上传</translation>
    </message>
    <message>
        <source>uploading {size} to {id}, private</source>
        <translation>正在将 {size} 上传到 {id}（私有）</translation>
    </message>
    <message>
        <source>uploading {size} to {id}, public</source>
        <translation>正在将 {size} 上传到 {id}（公开）</translation>
    </message>
    <message>
        <source>usage: </source>
        <translation>用法：</translation>
    </message>
    <message>
        <source>uv downloads everything itself: {error}</source>
        <translation>改由 uv 自行下载全部内容：{error}</translation>
    </message>
    <message>
        <source>uv is not installed, and pip could not download it from the package index.</source>
        <translation>未安装 uv，pip 也无法从软件包索引下载它。</translation>
    </message>
    <message>
        <source>uv {arguments} ended with exit code {exit_code}. The lines above say why.</source>
        <translation>uv {arguments} 以退出码 {exit_code} 结束，原因见上面的输出。</translation>
    </message>
    <message>
        <source>uv: {path}, downloaded from the package index</source>
        <translation>uv：{path}，下载自软件包索引</translation>
    </message>
    <message>
        <source>valid JSON</source>
        <translation>JSON 有效</translation>
    </message>
    <message>
        <source>values are nested too deeply, or a number is too long</source>
        <translation>值嵌套过深，或某个数字过长</translation>
    </message>
    <message>
        <source>verifying</source>
        <translation>正在验证</translation>
    </message>
    <message>
        <source>version {major}.{minor} is too old</source>
        <translation>版本 {major}.{minor} 过旧</translation>
    </message>
    <message>
        <source>vocab_size is {vocab_size}, but the embedding in the weights has {rows} rows</source>
        <translation>vocab_size 为 {vocab_size}，但权重中的词嵌入有 {rows} 行</translation>
    </message>
    <message>
        <source>waiting for the hub</source>
        <translation>正在等待模型站</translation>
    </message>
    <message>
        <source>warning</source>
        <translation>警告</translation>
    </message>
    <message>
        <source>warning: {message}</source>
        <translation>警告：{message}</translation>
    </message>
    <message>
        <source>warning: {text}</source>
        <translation>警告：{text}</translation>
    </message>
    <message>
        <source>warning[{code}]: {message}</source>
        <translation>警告[{code}]：{message}</translation>
    </message>
    <message>
        <source>weights in 4 bits can&apos;t be trained themselves. Set it to none, or use LoRA</source>
        <translation>4 位权重本身无法训练。请设为“无”，或改用 LoRA</translation>
    </message>
    <message>
        <source>what</source>
        <translation>项目</translation>
    </message>
    <message>
        <source>what a row of the files contains</source>
        <translation>文件的每一行包含什么</translation>
    </message>
    <message>
        <source>what a run would learn from (sft)</source>
        <translation>训练要从什么中学习（sft）</translation>
    </message>
    <message>
        <source>what answers (auto)</source>
        <translation>用什么设备回答（auto）</translation>
    </message>
    <message>
        <source>what the text answers</source>
        <translation>这段文本所回答的问题</translation>
    </message>
    <message>
        <source>what they set for an objective, documents or full</source>
        <translation>针对某个目标、documents 或 full 的设置</translation>
    </message>
    <message>
        <source>what to ask</source>
        <translation>要问的问题</translation>
    </message>
    <message>
        <source>where the model runs; auto takes a GPU if there is one</source>
        <translation>模型在哪里运行；auto 表示有 GPU 时使用 GPU</translation>
    </message>
    <message>
        <source>which column holds what, such as prompt=Question completion=Answer</source>
        <translation>各列的角色，例如 prompt=Question completion=Answer</translation>
    </message>
    <message>
        <source>with --plan: print JSON for programs</source>
        <translation>与 --plan 一起使用：输出供程序读取的 JSON</translation>
    </message>
    <message>
        <source>without {path} nobody can tell whether their tokens are the same</source>
        <translation>没有 {path}，无法判断两者的词元是否相同</translation>
    </message>
    <message>
        <source>word</source>
        <translation>词</translation>
    </message>
    <message>
        <source>word F1</source>
        <translation>词级 F1</translation>
    </message>
    <message>
        <source>works ({time})</source>
        <translation>正常（{time}）</translation>
    </message>
    <message>
        <source>wrong</source>
        <translation>错误</translation>
    </message>
    <message>
        <source>wsl.exe ended with exit code {code}.</source>
        <translation>wsl.exe 以退出码 {code} 结束。</translation>
    </message>
    <message>
        <source>your reward</source>
        <translation>您的奖励函数</translation>
    </message>
    <message>
        <source>{after} of the held-out texts are sorted into the right class (before training: {before}).</source>
        <translation>留出的文本中有 {after} 被分到正确的类别（训练前：{before}）。</translation>
    </message>
    <message>
        <source>{after} of the steps in held-out solutions are judged rightly (before training: {before}).</source>
        <translation>留出解答中有 {after} 的步骤判断正确（训练前：{before}）。</translation>
    </message>
    <message>
        <source>{answer} is none of the options {labels}</source>
        <translation>的值 {answer} 不是选项 {labels} 中的任何一项</translation>
    </message>
    <message>
        <source>{answer} may be counted from 0 or from 1. Write letters, such as {letter}</source>
        <translation>的值 {answer} 可能从 0 数起，也可能从 1 数起。请写字母，例如 {letter}</translation>
    </message>
    <message>
        <source>{cause} ({code})</source>
        <translation>{cause}（{code}）</translation>
    </message>
    <message>
        <source>{choice}: {error}.</source>
        <translation>{choice}：{error}。</translation>
    </message>
    <message>
        <source>{column} ({number:,})</source>
        <translation>{column}（{number:,}）</translation>
    </message>
    <message>
        <source>{count:,} bytes more than the header describes</source>
        <translation>比文件头所描述的多 {count:,} 字节</translation>
    </message>
    <message>
        <source>{count:,} files missing or changed</source>
        <translation>{count:,} 个文件缺失或被改动</translation>
    </message>
    <message>
        <source>{count:,} files of unknown origin</source>
        <translation>{count:,} 个文件来源不明</translation>
    </message>
    <message>
        <source>{count} broken and unused, {size}: {lines}.</source>
        <translation>{count} 个已损坏且未使用，共 {size}：{lines}。</translation>
    </message>
    <message>
        <source>{count} damaged files</source>
        <translation>{count} 个文件损坏</translation>
    </message>
    <message>
        <source>{count} environments match {name!r}. Available: {names}.</source>
        <translation>与 {name!r} 匹配的环境有 {count} 个。可用的有：{names}。</translation>
    </message>
    <message>
        <source>{count} items in the trash are named {name!r}, last deleted first: {ids}.</source>
        <translation>回收站中有 {count} 个名为 {name!r} 的项目，最近删除的在前：{ids}。</translation>
    </message>
    <message>
        <source>{count} of {total} expected answers match {pattern}</source>
        <translation>{total} 个预期回答中有 {count} 个与 {pattern} 匹配</translation>
    </message>
    <message>
        <source>{count} of {total} weights</source>
        <translation>{total} 个权重中的 {count} 个</translation>
    </message>
    <message>
        <source>{count} packages</source>
        <translation>{count} 个包</translation>
    </message>
    <message>
        <source>{count} weights of the checkpoint don&apos;t fit the run, such as {name}: {old} -&gt; {new}.</source>
        <translation>检查点中有 {count} 个权重与本次运行不匹配，例如 {name}：{old} -&gt; {new}。</translation>
    </message>
    <message>
        <source>{data_path} contains chats, but the model {path} has no chat template.</source>
        <translation>{data_path} 含有对话，但模型 {path} 没有对话模板。</translation>
    </message>
    <message>
        <source>{done:,} of {total:,} passages</source>
        <translation>第 {done:,} / {total:,} 段</translation>
    </message>
    <message>
        <source>{done} of {total}</source>
        <translation>{done} / {total}</translation>
    </message>
    <message>
        <source>{first} or {second}</source>
        <translation>{first}或{second}</translation>
    </message>
    <message>
        <source>{folder} contains something other than Tunesmith.</source>
        <translation>{folder} 中有 Tunesmith 以外的内容。</translation>
    </message>
    <message>
        <source>{folder} holds no model to try it with.</source>
        <translation>{folder} 中没有可供试用的模型。</translation>
    </message>
    <message>
        <source>{folder} is missing.</source>
        <translation>{folder} 不存在。</translation>
    </message>
    <message>
        <source>{folder} is not on the PATH of this terminal. The menu entry works anyway.</source>
        <translation>{folder} 不在此终端的 PATH 中，但菜单项可以使用。</translation>
    </message>
    <message>
        <source>{folder} was not made for Python {version}.</source>
        <translation>{folder} 不是为 Python {version} 创建的。</translation>
    </message>
    <message>
        <source>{folder}: program files are damaged ({count}): {shown}.</source>
        <translation>{folder}：有 {count} 个程序文件损坏：{shown}。</translation>
    </message>
    <message>
        <source>{folder}: the base model is not the one that this run was trained on. Changed since: {names}.</source>
        <translation>{folder}：这不是本次运行训练时所用的基础模型。此后改动过的文件：{names}。</translation>
    </message>
    <message>
        <source>{folder}: the base model predicts NaN, before any training.</source>
        <translation>{folder}：基础模型在训练之前的预测就是 NaN。</translation>
    </message>
    <message>
        <source>{folder}: the export needs {size:.0f} MiB more, but only {free:.0f} MiB are free.</source>
        <translation>{folder}：导出还需要 {size:.0f} MiB，但只有 {free:.0f} MiB 可用。</translation>
    </message>
    <message>
        <source>{folder}: the folder of wheels from the settings does not exist.</source>
        <translation>{folder}：设置中的 wheel 文件夹不存在。</translation>
    </message>
    <message>
        <source>{folder}: transformers has no head that rates texts for models of type {model_type}.</source>
        <translation>{folder}：transformers 没有为 {model_type} 类型的模型提供给文本打分的输出头。</translation>
    </message>
    <message>
        <source>{folder}: {count} program files are damaged, first {name}.</source>
        <translation>{folder}：{count} 个程序文件损坏，首个是 {name}。</translation>
    </message>
    <message>
        <source>{folder}: {kind} needs {required}, {free} are free.</source>
        <translation>{folder}：{kind} 需要 {required}，可用 {free}。</translation>
    </message>
    <message>
        <source>{folder}: {needed} are needed, {free} are free.</source>
        <translation>{folder}：需要 {needed}，可用 {free}。</translation>
    </message>
    <message>
        <source>{format}, synthetic</source>
        <translation>{format}，合成</translation>
    </message>
    <message>
        <source>{free} free at {folder}</source>
        <translation>{folder} 可用 {free}</translation>
    </message>
    <message>
        <source>{free} of {all} free</source>
        <translation>{free} 可用，共 {all}</translation>
    </message>
    <message>
        <source>{hint} Its newest checkpoint is {path}.</source>
        <translation>{hint}最新的检查点是 {path}。</translation>
    </message>
    <message>
        <source>{hours} h {minutes:02d} min</source>
        <translation>{hours} 小时 {minutes:02d} 分</translation>
    </message>
    <message>
        <source>{how} The adapter fits this model better than the one that it was made from.</source>
        <translation>{how}适配器最适合这个模型，而不是它量化前的原模型。</translation>
    </message>
    <message>
        <source>{how} The adapter fits this model better than {base}, which it was made from.</source>
        <translation>{how}适配器最适合这个模型，而不是量化前的 {base}。</translation>
    </message>
    <message>
        <source>{id} contains GGUF files only, which are made for answering.</source>
        <translation>{id} 只包含用于推理的 GGUF 文件。</translation>
    </message>
    <message>
        <source>{id} contains an adapter, not a model.</source>
        <translation>{id} 包含适配器，而不是模型。</translation>
    </message>
    <message>
        <source>{id} contains no {name}.</source>
        <translation>{id} 不包含 {name}。</translation>
    </message>
    <message>
        <source>{id} exists and holds other files: {names}.</source>
        <translation>{id} 已存在，且包含其他文件：{names}。</translation>
    </message>
    <message>
        <source>{id} exists and is public.</source>
        <translation>{id} 已存在且是公开的。</translation>
    </message>
    <message>
        <source>{id} has no such revision.</source>
        <translation>{id} 没有该修订版本。</translation>
    </message>
    <message>
        <source>{id} is not a hub id such as org/name.</source>
        <translation>{id} 不是 org/name 形式的模型站 ID。</translation>
    </message>
    <message>
        <source>{id} was not downloaded yet.</source>
        <translation>{id} 尚未下载。</translation>
    </message>
    <message>
        <source>{id}: Tunesmith uploads to Hugging Face, and the model hub that is chosen is ModelScope.</source>
        <translation>{id}：Tunesmith 只能上传到 Hugging Face，而当前选择的模型站是 ModelScope。</translation>
    </message>
    <message>
        <source>{id}: a file has a name that is not allowed: {name}</source>
        <translation>{id}：有文件名不被允许：{name}</translation>
    </message>
    <message>
        <source>{id}: the hub already has something of this name.</source>
        <translation>{id}：模型站已有同名内容。</translation>
    </message>
    <message>
        <source>{id}: the hub answered {status}.</source>
        <translation>{id}：模型站应答 {status}。</translation>
    </message>
    <message>
        <source>{id}: the hub gives no hash for {name}, so it can&apos;t be checked.</source>
        <translation>{id}：模型站没有给出 {name} 的哈希值，因此无法校验。</translation>
    </message>
    <message>
        <source>{id}: the weights are in pickle format only ({name}).</source>
        <translation>{id}：权重只有 pickle 格式（{name}）。</translation>
    </message>
    <message>
        <source>{id}: there is no access token.</source>
        <translation>{id}：没有访问令牌。</translation>
    </message>
    <message>
        <source>{id}: two files differ in upper and lower case only.</source>
        <translation>{id}：有两个文件仅大小写不同。</translation>
    </message>
    <message>
        <source>{id}: {name}</source>
        <translation>{id}：{name}</translation>
    </message>
    <message>
        <source>{id}: {reason}</source>
        <translation>{id}：{reason}</translation>
    </message>
    <message>
        <source>{kind} gives no prediction for each token of a text.</source>
        <translation>{kind} 并不为文本的每个词元给出预测。</translation>
    </message>
    <message>
        <source>{kind}: installed files are damaged ({count}): {shown}.</source>
        <translation>{kind}：有 {count} 个已安装的文件损坏：{shown}。</translation>
    </message>
    <message>
        <source>{kind}: packages contain files that Python would run at every start: {names}.</source>
        <translation>{kind}：包中含有 Python 每次启动都会运行的文件：{names}。</translation>
    </message>
    <message>
        <source>{kind}: the installed packages can&apos;t be imported.</source>
        <translation>{kind}：无法导入已安装的包。</translation>
    </message>
    <message>
        <source>{kind}: {path} disappeared in the meantime.</source>
        <translation>{kind}：{path} 在此期间消失了。</translation>
    </message>
    <message>
        <source>{labels} differ in case or blanks only. They are learned as different classes.</source>
        <translation>{labels} 只有大小写或空格不同，会被当作不同的类别来学习。</translation>
    </message>
    <message>
        <source>{label} is set otherwise than for the trained adapter</source>
        <translation>{label} 的设置与所训练的适配器不同</translation>
    </message>
    <message>
        <source>{label}, cut at {num_tokens:,} tokens</source>
        <translation>{label}，在 {num_tokens:,} 个词元处截断</translation>
    </message>
    <message>
        <source>{label}: right</source>
        <translation>{label}：对</translation>
    </message>
    <message>
        <source>{label}: wrong</source>
        <translation>{label}：错</translation>
    </message>
    <message>
        <source>{label}: {share}</source>
        <translation>{label}：{share}</translation>
    </message>
    <message>
        <source>{language} {share:.0%}</source>
        <translation>{language} {share:.0%}</translation>
    </message>
    <message>
        <source>{message} The example works without it. For the window: {hint}</source>
        <translation>{message}示例不需要它。要使用窗口：{hint}</translation>
    </message>
    <message>
        <source>{message} Trying again in {seconds} s.</source>
        <translation>{message} {seconds} 秒后重试。</translation>
    </message>
    <message>
        <source>{minutes} min {seconds:02d} s</source>
        <translation>{minutes} 分 {seconds:02d} 秒</translation>
    </message>
    <message>
        <source>{model} answered none of the prompts.</source>
        <translation>{model} 没有回答任何提示词。</translation>
    </message>
    <message>
        <source>{model} wrote nothing that can be read as a question and its answer.</source>
        <translation>{model} 没有写出能识别为问题和答案的内容。</translation>
    </message>
    <message>
        <source>{name!r} is not NAME=VALUE.</source>
        <translation>{name!r} 不是“名称=值”的形式。</translation>
    </message>
    <message>
        <source>{names} is too old for PyTorch, which needs a GTX 1000 or newer.</source>
        <translation>{names} 对 PyTorch 来说太旧，需要 GTX 1000 或更新的显卡。</translation>
    </message>
    <message>
        <source>{names} is too old: CPU</source>
        <translation>{names} 太旧：CPU</translation>
    </message>
    <message>
        <source>{names}: experts stored in one weight support only LoRA in all layers, without DoRA, dropout and special initial values. Change these settings, or remove these names.</source>
        <translation>{names}：存放在同一个权重中的专家只支持作用于所有层的 LoRA，不支持 DoRA、dropout 和特殊的初始值。请更改这些设置，或去掉这些名称。</translation>
    </message>
    <message>
        <source>{names}: if kernels fail to compile, allow the folder {folder} there.</source>
        <translation>{names}：如果内核编译失败，请在其中放行文件夹 {folder}。</translation>
    </message>
    <message>
        <source>{names}: no answer in time</source>
        <translation>{names}：没有及时响应</translation>
    </message>
    <message>
        <source>{names}: no answer is right after training, however far the loss fell.</source>
        <translation>{names}：无论损失下降多少，训练后没有一个回答正确。</translation>
    </message>
    <message>
        <source>{names}: the interval leaves out 0, but chance alone gives as much more often than once in 20 times (p). More rows would tell.</source>
        <translation>{names}：区间虽不包含 0，但仅凭偶然出现这样大的差异，概率也超过二十分之一（p）。需要更多的行才能确定。</translation>
    </message>
    <message>
        <source>{name} (default)</source>
        <translation>{name}（默认）</translation>
    </message>
    <message>
        <source>{name} (weight {weight:g})</source>
        <translation>{name}（权重 {weight:g}）</translation>
    </message>
    <message>
        <source>{name} ({kind}) combines its experts in an unsupported way.</source>
        <translation>{name}（{kind}）以不受支持的方式组合各个专家。</translation>
    </message>
    <message>
        <source>{name} ({kind}) hands its layers {names}.</source>
        <translation>{name}（{kind}）会把 {names} 传给各层。</translation>
    </message>
    <message>
        <source>{name} ({kind}) has an unsupported form.</source>
        <translation>{name}（{kind}）的形式不受支持。</translation>
    </message>
    <message>
        <source>{name} ({kind}) has experts of an unsupported form.</source>
        <translation>{name}（{kind}）的专家形式不受支持。</translation>
    </message>
    <message>
        <source>{name} ({kind}) has no MLP.</source>
        <translation>{name}（{kind}）没有 MLP。</translation>
    </message>
    <message>
        <source>{name} ({kind}) has no activation.</source>
        <translation>{name}（{kind}）没有激活函数。</translation>
    </message>
    <message>
        <source>{name} ({kind}) has no attention.</source>
        <translation>{name}（{kind}）没有注意力模块。</translation>
    </message>
    <message>
        <source>{name} ({kind}) is not a norm with a weight.</source>
        <translation>{name}（{kind}）不是带权重的归一化层。</translation>
    </message>
    <message>
        <source>{name} ({kind}) makes its per-layer inputs in an unsupported way.</source>
        <translation>{name}（{kind}）生成逐层输入的方式不受支持。</translation>
    </message>
    <message>
        <source>{name} ({kind}) was not tried.</source>
        <translation>{name}（{kind}）未经试算。</translation>
    </message>
    <message>
        <source>{name} adds noise to its input ({attribute}).</source>
        <translation>{name} 会给输入加入噪声（{attribute}）。</translation>
    </message>
    <message>
        <source>{name} and {first} are one weight, and the adapter changes each in its own way. A model with the adapter in it can&apos;t hold both.</source>
        <translation>{name} 与 {first} 是同一个权重，而适配器对两者的改动不同。合并了适配器的模型无法同时保存两者。</translation>
    </message>
    <message>
        <source>{name} can&apos;t have an adapter and be trained whole. Remove it from the target modules.</source>
        <translation>{name} 不能既有适配器又整体训练。请把它从目标模块中删去。</translation>
    </message>
    <message>
        <source>{name} changed. {effect}</source>
        <translation>{name} 有改动。{effect}</translation>
    </message>
    <message>
        <source>{name} combines its parts in an unsupported order.</source>
        <translation>{name} 各部分的组合顺序不受支持。</translation>
    </message>
    <message>
        <source>{name} does not call {kind}.</source>
        <translation>{name} 没有调用 {kind}。</translation>
    </message>
    <message>
        <source>{name} doesn&apos;t hand its layers&apos; results on as they are.</source>
        <translation>{name} 没有把各层的结果原样传给下一层。</translation>
    </message>
    <message>
        <source>{name} doesn&apos;t look at all tokens before its own, which is not supported.</source>
        <translation>{name} 没有看到此前的全部词元，这种情况不受支持。</translation>
    </message>
    <message>
        <source>{name} hands its layers several streams.</source>
        <translation>{name} 向各层传递多个流。</translation>
    </message>
    <message>
        <source>{name} hands {kind} what comes from other layers: {names}.</source>
        <translation>{name} 把其他层的结果传给 {kind}：{names}。</translation>
    </message>
    <message>
        <source>{name} has a convolution of {width}; at most {widest} is supported.</source>
        <translation>{name} 的卷积宽度为 {width}；最多支持 {widest}。</translation>
    </message>
    <message>
        <source>{name} has a norm behind its last layer&apos;s, which is not supported.</source>
        <translation>{name} 在最后一层的归一化层之后还有一个归一化层，不支持这种情况。</translation>
    </message>
    <message>
        <source>{name} has an unsupported kind of layer, {kind}.</source>
        <translation>{name} 含有不受支持的层类型 {kind}。</translation>
    </message>
    <message>
        <source>{name} has another date than before. Only samples of it were compared: they are equal.</source>
        <translation>{name} 的日期与之前不同。只比较了其中的抽样部分，结果一致。</translation>
    </message>
    <message>
        <source>{name} has experts beside its MLP, which is not supported.</source>
        <translation>{name} 在 MLP 之外还有专家，暂不支持。</translation>
    </message>
    <message>
        <source>{name} has heads of {head_dim} with states of {state_dim} and a convolution of {width}; at most {largest}, {most} and {widest} are supported.</source>
        <translation>{name} 的头宽为 {head_dim}，状态宽度为 {state_dim}，卷积宽度为 {width}；最多分别支持 {largest}、{most} 和 {widest}。</translation>
    </message>
    <message>
        <source>{name} has heads of {key_dim} and {value_dim} and a convolution of {width}; at most {largest} and {widest} are supported.</source>
        <translation>{name} 的头宽为 {key_dim} 和 {value_dim}，卷积宽度为 {width}；最多支持 {largest} 和 {widest}。</translation>
    </message>
    <message>
        <source>{name} has no fused step for single tokens.</source>
        <translation>{name} 没有逐个词元的融合计算。</translation>
    </message>
    <message>
        <source>{name} has no layers.</source>
        <translation>{name} 没有任何层。</translation>
    </message>
    <message>
        <source>{name} has no rank or alpha</source>
        <translation>{name} 中没有秩或 alpha</translation>
    </message>
    <message>
        <source>{name} has no rotary table.</source>
        <translation>{name} 没有旋转位置编码表。</translation>
    </message>
    <message>
        <source>{name} has no weights to try.</source>
        <translation>{name} 没有可供试算的权重。</translation>
    </message>
    <message>
        <source>{name} has parts that run in plain PyTorch only.</source>
        <translation>{name} 的部分内容只能用纯 PyTorch 运行。</translation>
    </message>
    <message>
        <source>{name} has the shape {shape}, the trained adapter&apos;s {own}</source>
        <translation>{name} 的形状为 {shape}，所训练的适配器为 {own}</translation>
    </message>
    <message>
        <source>{name} has values that are wider than its keys.</source>
        <translation>{name} 的值比键更宽。</translation>
    </message>
    <message>
        <source>{name} holds a mask that is not supported.</source>
        <translation>{name} 自带的掩码不受支持。</translation>
    </message>
    <message>
        <source>{name} holds no LoRA weights</source>
        <translation>{name} 中没有 LoRA 权重</translation>
    </message>
    <message>
        <source>{name} instead of CPython</source>
        <translation>是 {name}，不是 CPython</translation>
    </message>
    <message>
        <source>{name} is already complete</source>
        <translation>{name} 已齐全</translation>
    </message>
    <message>
        <source>{name} is an old fork that hides bitsandbytes.</source>
        <translation>{name} 是旧的分支版本，会遮蔽 bitsandbytes。</translation>
    </message>
    <message>
        <source>{name} is missing or can&apos;t be read</source>
        <translation>{name} 缺失或无法读取</translation>
    </message>
    <message>
        <source>{name} is missing, damaged or not downloaded</source>
        <translation>{name} 缺失、损坏或未下载</translation>
    </message>
    <message>
        <source>{name} is not a JSON number</source>
        <translation>{name} 不是 JSON 数字</translation>
    </message>
    <message>
        <source>{name} is not a norm of each head.</source>
        <translation>{name} 不是逐头的归一化。</translation>
    </message>
    <message>
        <source>{name} is not a table.</source>
        <translation>{name} 不是嵌入表。</translation>
    </message>
    <message>
        <source>{name} is not installed.</source>
        <translation>{name} 未安装。</translation>
    </message>
    <message>
        <source>{name} is not valid JSON</source>
        <translation>{name} 不是有效的 JSON</translation>
    </message>
    <message>
        <source>{name} is the base model of 1 run: {runs}.</source>
        <translation>{name} 是 1 个运行的基础模型：{runs}。</translation>
    </message>
    <message>
        <source>{name} is the base model of {number} runs: {runs}.</source>
        <translation>{name} 是 {number} 个运行的基础模型：{runs}。</translation>
    </message>
    <message>
        <source>{name} makes its streams in an unsupported way.</source>
        <translation>{name} 以不支持的方式生成多个流。</translation>
    </message>
    <message>
        <source>{name} multiplies the input of a projection with a bias.</source>
        <translation>{name} 对带偏置的投影层的输入做乘法。</translation>
    </message>
    <message>
        <source>{name} multiplies the output of a projection with a bias.</source>
        <translation>{name} 对带偏置的投影层的输出做乘法。</translation>
    </message>
    <message>
        <source>{name} must have the number of a token</source>
        <translation>{name} 的值必须是词元编号</translation>
    </message>
    <message>
        <source>{name} needs a number of at least 0 for each file. Files: {count}. Numbers: {given}.</source>
        <translation>{name} 需要为每个文件指定一个不小于 0 的数。文件数：{count}。已指定：{given} 个。</translation>
    </message>
    <message>
        <source>{name} passes over a layer.</source>
        <translation>{name} 跳过了某一层。</translation>
    </message>
    <message>
        <source>{name} reads keys and values that no earlier layer has.</source>
        <translation>{name} 读取的键和值在前面的层中不存在。</translation>
    </message>
    <message>
        <source>{name} sees no GPU: /dev/dxg is missing.</source>
        <translation>{name} 看不到显卡：缺少 /dev/dxg。</translation>
    </message>
    <message>
        <source>{name} turns embeddings of {width:,} numbers into the {hidden:,} that its layers read, which is not supported.</source>
        <translation>{name} 会把 {width:,} 维的嵌入转换成各层读取的 {hidden:,} 维，暂不支持这种做法。</translation>
    </message>
    <message>
        <source>{name} uses its last norm several times.</source>
        <translation>{name} 多次使用了最后的归一化层。</translation>
    </message>
    <message>
        <source>{name} was not downloaded by Tunesmith, so its hashes are not known.</source>
        <translation>{name} 不是由 Tunesmith 下载的，因此哈希值未知。</translation>
    </message>
    <message>
        <source>{name} {perplexity}</source>
        <translation>{name} {perplexity}</translation>
    </message>
    <message>
        <source>{name} {problem}</source>
        <translation>{name} {problem}</translation>
    </message>
    <message>
        <source>{name} {problem}, not {value}</source>
        <translation>{name} {problem}，而不是 {value}</translation>
    </message>
    <message>
        <source>{name} {version} does not belong here</source>
        <translation>{name} {version} 不应出现在这里</translation>
    </message>
    <message>
        <source>{name} {version} does not match PyTorch {torch}, which needs {expected}.</source>
        <translation>{name} {version} 与 PyTorch {torch} 不匹配，需要 {expected}。</translation>
    </message>
    <message>
        <source>{name} {version} instead of {wanted}</source>
        <translation>{name} 是 {version}，应为 {wanted}</translation>
    </message>
    <message>
        <source>{name} {version} matches PyTorch.</source>
        <translation>{name} {version} 与 PyTorch 匹配。</translation>
    </message>
    <message>
        <source>{name} {wanted} is missing</source>
        <translation>缺少 {name} {wanted}</translation>
    </message>
    <message>
        <source>{name}, {count} threads</source>
        <translation>{name}，{count} 线程</translation>
    </message>
    <message>
        <source>{name}: Python did not answer within {seconds} s.</source>
        <translation>{name}：Python 在 {seconds} 秒内没有响应。</translation>
    </message>
    <message>
        <source>{name}: Python does not start. The Python it was built from may have been updated or removed.</source>
        <translation>{name}：Python 无法启动。构建它所用的 Python 可能已更新或被删除。</translation>
    </message>
    <message>
        <source>{name}: files are damaged, missing or unknown ({count})</source>
        <translation>{name}：有 {count} 个文件损坏、缺失或来源不明</translation>
    </message>
    <message>
        <source>{name}: the list of its files is damaged or was never made.</source>
        <translation>{name}：文件清单已损坏或从未生成。</translation>
    </message>
    <message>
        <source>{name}: training was never tested on this computer.</source>
        <translation>{name}：从未在此电脑上测试过训练。</translation>
    </message>
    <message>
        <source>{name}: {counted}. First: {path}.</source>
        <translation>{name}：{counted}。首个：{path}。</translation>
    </message>
    <message>
        <source>{name}: {details}</source>
        <translation>{name}：{details}</translation>
    </message>
    <message>
        <source>{name}: {done} of {total}, {speed:.1f} MB/s{left}</source>
        <translation>{name}：{done} / {total}，{speed:.1f} MB/s{left}</translation>
    </message>
    <message>
        <source>{name}: {download} to download, {disk} on disk.</source>
        <translation>{name}：需下载 {download}，占用磁盘 {disk}。</translation>
    </message>
    <message>
        <source>{name}: {fault}</source>
        <translation>{name}：{fault}</translation>
    </message>
    <message>
        <source>{name}: {free} of {total} free</source>
        <translation>{name}：共 {total}，可用 {free}</translation>
    </message>
    <message>
        <source>{name}: {needed}</source>
        <translation>{name}：{needed}</translation>
    </message>
    <message>
        <source>{name}: {old} -&gt; {new}. {effect}</source>
        <translation>{name}：{old} -&gt; {new}。{effect}</translation>
    </message>
    <message>
        <source>{name}: {problem}</source>
        <translation>{name}：{problem}</translation>
    </message>
    <message>
        <source>{name}: {reason}</source>
        <translation>{name}：{reason}</translation>
    </message>
    <message>
        <source>{name}: {reason}.</source>
        <translation>{name}：{reason}。</translation>
    </message>
    <message>
        <source>{name}: {shown}. The current one stays in use.</source>
        <translation>{name}：{shown}。继续使用当前的环境。</translation>
    </message>
    <message>
        <source>{name}: {width} outputs don&apos;t divide into heads of {head_dim}.</source>
        <translation>{name}：{width} 个输出无法划分为大小为 {head_dim} 的注意力头。</translation>
    </message>
    <message>
        <source>{name}{inside}</source>
        <translation>{name}{inside}</translation>
    </message>
    <message>
        <source>{nats} nats</source>
        <translation>约 {nats} 纳特</translation>
    </message>
    <message>
        <source>{num:,} problems held out: {path}</source>
        <translation>留出的题目 {num:,} 道：{path}</translation>
    </message>
    <message>
        <source>{num:,} problems to train on: {path}</source>
        <translation>用于训练的题目 {num:,} 道：{path}</translation>
    </message>
    <message>
        <source>{num_good:,} answers are labeled good and {num_bad:,} bad. With its weight, one side counts for more than three times as much as the other. Raise the weight of the other side.</source>
        <translation>{num_good:,} 个回答标注为好，{num_bad:,} 个标注为差。按权重计算，一方的分量是另一方的三倍以上。请提高另一方的权重。</translation>
    </message>
    <message>
        <source>{num_missing:,} weights of experts are missing, such as {name}</source>
        <translation>缺少 {num_missing:,} 个专家权重，例如 {name}</translation>
    </message>
    <message>
        <source>{number:,} questions</source>
        <translation>{number:,} 个问题</translation>
    </message>
    <message>
        <source>{number:,} row</source>
        <translation>{number:,} 行</translation>
    </message>
    <message>
        <source>{num} lines of {file} can&apos;t be read and are not counted. They stay in the file.</source>
        <translation>{file} 中有 {num} 行无法读取，没有计入。这些行保留在文件中。</translation>
    </message>
    <message>
        <source>{num} more</source>
        <translation>另外 {num} 个</translation>
    </message>
    <message>
        <source>{num} votes teach the model little. It may learn these answers by heart and answer everything else as before. More than {few} votes are a start, and more are better.</source>
        <translation>只凭 {num} 票，模型学到的很少。它可能只是背下这些回答，其他问题仍照旧回答。{few} 票以上才算起步，越多越好。</translation>
    </message>
    <message>
        <source>{optimizer} is for full fine-tuning. Choose AdamW for LoRA</source>
        <translation>{optimizer} 用于全量微调。LoRA 请选择 AdamW</translation>
    </message>
    <message>
        <source>{paths}: all rows are of one group by the column &quot;{column}&quot; (evaluation.group_column), so none can be held out. Groups that have a row in common count as one.</source>
        <translation>{paths}：按“{column}”列（evaluation.group_column）分组后只有一组，无法留出。有相同行的组算作一组。</translation>
    </message>
    <message>
        <source>{path} (missing)</source>
        <translation>{path}（缺失）</translation>
    </message>
    <message>
        <source>{path} ({size})</source>
        <translation>{path}（{size}）</translation>
    </message>
    <message>
        <source>{path} belongs to another program and was not changed. Start {command} instead.</source>
        <translation>{path} 属于其他程序，未作更改。请改为启动 {command}。</translation>
    </message>
    <message>
        <source>{path} can&apos;t be removed: {reason}</source>
        <translation>无法删除 {path}：{reason}</translation>
    </message>
    <message>
        <source>{path} can&apos;t be replaced: {reason}.</source>
        <translation>无法替换 {path}：{reason}。</translation>
    </message>
    <message>
        <source>{path} already exists.</source>
        <translation>{path} 已存在。</translation>
    </message>
    <message>
        <source>Correct the labels, or map the column that holds them.</source>
        <translation>更正标签，或指定标签所在的列。</translation>
    </message>
    <message>
        <source>This adapter can&apos;t be used here</source>
        <translation>此适配器不能用在这里</translation>
    </message>
    <message>
        <source>Its folder is incomplete, it is of another kind, or it belongs to another base model.</source>
        <translation>文件夹不完整、类型不符，或属于另一个基础模型。</translation>
    </message>
    <message>
        <source>Choose another adapter folder, or the base model that this adapter was trained on.</source>
        <translation>请选择其他适配器文件夹，或选择训练此适配器时所用的基础模型。</translation>
    </message>
    <message>
        <source>A model learns from a bigger one token by token, so both must have the same tokenizer.</source>
        <translation>模型逐词元地向更大的模型学习，因此两者必须使用相同的分词器。</translation>
    </message>
    <message>
        <source>Choose a bigger model of the same family as the base model.</source>
        <translation>请选择与基础模型同一系列的更大模型。</translation>
    </message>
    <message>
        <source>Correct the named file or setting, then start or resume the run.</source>
        <translation>更正所指的文件或设置，然后开始或继续训练。</translation>
    </message>
    <message>
        <source>no gradient clipping, with updates layer by layer</source>
        <translation>不裁剪梯度，逐层更新</translation>
    </message>
    <message>
        <source>Add a column with labels, such as good for 4 or more and bad for 2 or less.</source>
        <translation>添加一列标签，例如 4 分及以上为好，2 分及以下为差。</translation>
    </message>
    <message>
        <source>Add and subtract whole numbers</source>
        <translation>整数加减</translation>
    </message>
    <message>
        <source>Add answers labeled bad, or teach by example (SFT), which learns from good answers.</source>
        <translation>添加标为差的回答，或改用示例学习（SFT），它只从好的回答中学习。</translation>
    </message>
    <message>
        <source>Add rows with other labels, or map the column that holds them.</source>
        <translation>添加带有其他标签的行，或指定标签所在的列。</translation>
    </message>
    <message>
        <source>All rows ({num:,}) have the label &quot;{label}&quot;, so there is nothing to tell apart.</source>
        <translation>全部 {num:,} 行的标签都是“{label}”，没有可区分的内容。</translation>
    </message>
    <message>
        <source>Answers of {number:,} tokens can&apos;t be asked for: {path} reads at most {most:,} tokens.</source>
        <translation>不能要求 {number:,} 个词元的回答：{path} 最多读取 {most:,} 个词元。</translation>
    </message>
    <message>
        <source>Answers that were cut at the longest length and left out: {number:,}</source>
        <translation>因达到最大长度被截断而舍弃的回答：{number:,}</translation>
    </message>
    <message>
        <source>Answers written: {number:,}. Prompts: {prompts:,}. They are in {path}</source>
        <translation>已生成回答：{number:,}。提示词：{prompts:,}。保存在 {path}</translation>
    </message>
    <message>
        <source>Asking the reference</source>
        <translation>正在计算参考模型</translation>
    </message>
    <message>
        <source>Before this run:</source>
        <translation>本次运行之前：</translation>
    </message>
    <message>
        <source>Better than before the run: {better}.</source>
        <translation>比运行之前更好：{better}。</translation>
    </message>
    <message>
        <source>Better than before the run: {better}. Worse: {worse}.</source>
        <translation>比运行之前更好：{better}。变差：{worse}。</translation>
    </message>
    <message>
        <source>Calculate how long something took</source>
        <translation>计算时间间隔</translation>
    </message>
    <message>
        <source>Calculate with brackets</source>
        <translation>带括号的四则运算</translation>
    </message>
    <message>
        <source>Calculate with dates</source>
        <translation>日期计算</translation>
    </message>
    <message>
        <source>Chat (ShareGPT): the column {conversations} holds messages with &quot;from&quot; and &quot;value&quot;.</source>
        <translation>对话（ShareGPT）：列 {conversations} 包含带有“from”和“value”的消息。</translation>
    </message>
    <message>
        <source>Chat: the column {messages} holds the messages of each.</source>
        <translation>对话：列 {messages} 保存每段对话的消息。</translation>
    </message>
    <message>
        <source>Choose a name such as {name}.</source>
        <translation>请使用 {name} 这样的文件名。</translation>
    </message>
    <message>
        <source>Choose an instruct model. A base model doesn&apos;t answer prompts.</source>
        <translation>请选择指令模型。基础模型不会回答提示词。</translation>
    </message>
    <message>
        <source>Choose the folder of a run that learned to score answers, of its export, or of another such model.</source>
        <translation>请选择学会给回答打分的训练、其导出结果或其他奖励模型所在的文件夹。</translation>
    </message>
    <message>
        <source>Convert a number to another base</source>
        <translation>进制转换</translation>
    </message>
    <message>
        <source>Count a letter in a text</source>
        <translation>数出文本中某个字母的个数</translation>
    </message>
    <message>
        <source>Count the legs of animals</source>
        <translation>数动物的腿</translation>
    </message>
    <message>
        <source>Count the ones of a binary number</source>
        <translation>数出二进制数中 1 的个数</translation>
    </message>
    <message>
        <source>Each layer is updated as soon as its gradients are known. They are not clipped.</source>
        <translation>每一层的梯度一算出就更新该层，不裁剪梯度。</translation>
    </message>
    <message>
        <source>Empty answers that were left out: {number:,}</source>
        <translation>舍弃的空回答：{number:,}</translation>
    </message>
    <message>
        <source>Every step of the training rows is {label}, so there is nothing to learn.</source>
        <translation>训练行中的每个步骤都标为“{label}”，因此没有可学的内容。</translation>
    </message>
    <message>
        <source>Find out who lies and who tells the truth</source>
        <translation>判断谁说谎、谁说真话</translation>
    </message>
    <message>
        <source>Find the greatest common divisor</source>
        <translation>求最大公约数</translation>
    </message>
    <message>
        <source>Find the least common multiple</source>
        <translation>求最小公倍数</translation>
    </message>
    <message>
        <source>Find the prime factors of a number</source>
        <translation>分解质因数</translation>
    </message>
    <message>
        <source>For example: {name} {numbers}</source>
        <translation>例如：{name} {numbers}</translation>
    </message>
    <message>
        <source>Full fine-tuning in float16 runs in plain PyTorch.</source>
        <translation>float16 的全量微调由普通 PyTorch 运行。</translation>
    </message>
    <message>
        <source>In {after} of the held-out pairs the better answer scores higher, as before. Its score is now higher by {high}, before by {low} (on average).</source>
        <translation>在 {after} 的留出回答对中，较好的回答得分更高，与训练前相同。平均分差现在是 {high}，训练前是 {low}。</translation>
    </message>
    <message>
        <source>In {after} of the held-out pairs the model leans more toward the better answer than its reference does.</source>
        <translation>在 {after} 的留出偏好对中，模型比参考模型更倾向于较好的回答。</translation>
    </message>
    <message>
        <source>Install reasoning-gym and jsonschema, which tasks and the reward for a JSON schema need.

Their packages get a folder of their own. How much is downloaded is said first, and nothing is done without a yes.</source>
        <translation>安装 reasoning-gym 和 jsonschema，供练习任务和 JSON 模式奖励使用。

它们的软件包放在单独的文件夹中。下载前会先说明大小，未经同意不做任何事。</translation>
    </message>
    <message>
        <source>Instruction and response (Alpaca): the column {instruction} asks, and {output} answers.</source>
        <translation>指令与回答（Alpaca）：列 {instruction} 为提问，{output} 为回答。</translation>
    </message>
    <message>
        <source>Leave the setting out, or set it to the adapter&apos;s value.</source>
        <translation>请省略该设置，或改为适配器的值。</translation>
    </message>
    <message>
        <source>Map the columns: messages, instruction and output, prompt and completion, chosen and rejected, or text.</source>
        <translation>指定各列的含义：对话（messages）、指令和输出（instruction、output）、提示词和回答（prompt、completion）、较好和较差的回答（chosen、rejected），或文本（text）。</translation>
    </message>
    <message>
        <source>Multiply whole numbers</source>
        <translation>整数乘法</translation>
    </message>
    <message>
        <source>Nothing improved. Worse than before the run: {worse}.</source>
        <translation>没有改进。比运行之前差：{worse}。</translation>
    </message>
    <message>
        <source>Nothing was installed. Run: tunesmith {command} --yes</source>
        <translation>没有安装任何内容。请运行：tunesmith {command} --yes</translation>
    </message>
    <message>
        <source>Of the held-out answers the model rates {after} on the right side: good ones up, bad ones down, compared with the reference.</source>
        <translation>与参考模型相比，模型对 {after} 的留出回答判断正确：好的评分上升，差的下降。</translation>
    </message>
    <message>
        <source>Preference pairs: the column {winner} says which of {chosen} and {rejected} is better.</source>
        <translation>偏好数据对：{winner} 列说明 {chosen} 和 {rejected} 中哪个更好。</translation>
    </message>
    <message>
        <source>Reward {number} is the same as reward {first}. Both together count like one with the sum of their weights.</source>
        <translation>奖励 {number} 与奖励 {first} 相同。两者合在一起，相当于一个权重为两者之和的奖励。</translation>
    </message>
    <message>
        <source>Rounding the trained model to {type}, with positions stretched as in llama.cpp, gives {distance}.</source>
        <translation>把训练好的模型舍入为 {type}，并像 llama.cpp 那样拉伸位置，相差{distance}。</translation>
    </message>
    <message>
        <source>Rounding the trained model to {type}, without converting it, gives {distance}.</source>
        <translation>只把训练好的模型舍入为 {type} 而不转换，相差{distance}。</translation>
    </message>
    <message>
        <source>Rows whose label is false or whose vote is a tie are left out: {number:,}.</source>
        <translation>标签为 false 或投票为平局的行不参与训练：{number:,}。</translation>
    </message>
    <message>
        <source>Rows whose label is false or whose vote is a tie were left out: {number:,}</source>
        <translation>标签为 false 或投票为平局的行已略去：{number:,}</translation>
    </message>
    <message>
        <source>Same next token at {share} of {places} positions, {distance} apart.</source>
        <translation>在 {places} 个位置中，{share} 的下一个词元相同，相差{distance}。</translation>
    </message>
    <message>
        <source>Say which columns hold the better and the worse answer, or teach by example (SFT).</source>
        <translation>指定较好和较差的回答各在哪一列，或改用示例学习（SFT）。</translation>
    </message>
    <message>
        <source>Say which columns hold the prompt, the response and the label, or teach by example (SFT).</source>
        <translation>指定提示词、回答和标签各在哪一列，或改用示例学习（SFT）。</translation>
    </message>
    <message>
        <source>Set the context length to {stated} tokens.</source>
        <translation>请将上下文长度设为 {stated} 个词元。</translation>
    </message>
    <message>
        <source>Show the settings, or change them with NAME=VALUE.

`NAME=` empties a setting; `NAME=-` reads its value from the standard input, so that an address with a password stands
in no list of processes. What is shown has no passwords. Of the hub&apos;s access token, it is told where it is.</source>
        <translation>显示设置，或用 NAME=VALUE 更改设置。

`NAME=` 清空一项设置；`NAME=-` 从标准输入读取其值，这样带密码的地址不会出现在进程列表中。
显示的内容不含密码。对于模型站的访问令牌，只说明其所在位置。</translation>
    </message>
    <message>
        <source>Some answers are much rarer than others</source>
        <translation>有些回答远比其他回答少</translation>
    </message>
    <message>
        <source>Special tokens inside the text</source>
        <translation>文本中的特殊词元</translation>
    </message>
    <message>
        <source>Text garbled by a wrong encoding</source>
        <translation>因编码错误而乱码的文本</translation>
    </message>
    <message>
        <source>The first token to learn comes after {before} others, but the model is made for {most} tokens at most.</source>
        <translation>首个要学习的词元前面有 {before} 个词元，但该模型最多适用于 {most} 个词元。</translation>
    </message>
    <message>
        <source>The name of {path} must end in .jsonl, .csv or .parquet.</source>
        <translation>{path} 的名称必须以 .jsonl、.csv 或 .parquet 结尾。</translation>
    </message>
    <message>
        <source>The rows don&apos;t fit into one table: {reason}.</source>
        <translation>这些行无法放进同一张表：{reason}。</translation>
    </message>
    <message>
        <source>There are no data sets yet.</source>
        <translation>还没有数据集。</translation>
    </message>
    <message>
        <source>There is no data set named {name} in the library.</source>
        <translation>数据集库中没有名为 {name} 的数据集。</translation>
    </message>
    <message>
        <source>These rows are cut.</source>
        <translation>这些行会被截断。</translation>
    </message>
    <message>
        <source>These rows are kept.</source>
        <translation>这些行会保留。</translation>
    </message>
    <message>
        <source>These rows are left out.</source>
        <translation>这些行会被略去。</translation>
    </message>
    <message>
        <source>These rows are split.</source>
        <translation>这些行会被拆分。</translation>
    </message>
    <message>
        <source>Training rows that are also evaluation rows</source>
        <translation>同时出现在评估数据中的训练行</translation>
    </message>
    <message>
        <source>Turn off Work offline in the settings, remove the variable HF_HUB_OFFLINE if it is set, or choose a model on this computer.</source>
        <translation>请在设置中关闭“离线工作”，如已设置变量 HF_HUB_OFFLINE 请将其移除，或选择这台电脑上的模型。</translation>
    </message>
    <message>
        <source>Version</source>
        <translation>版本</translation>
    </message>
    <message>
        <source>Warning</source>
        <translation>警告</translation>
    </message>
    <message>
        <source>Write A, B or tie.</source>
        <translation>请写 A、B 或 tie（平局）。</translation>
    </message>
    <message>
        <source>Write JSONL instead, which takes rows of any layout.</source>
        <translation>请改写为 JSONL，它可以容纳任何结构的行。</translation>
    </message>
    <message>
        <source>a GitHub token</source>
        <translation>GitHub 令牌</translation>
    </message>
    <message>
        <source>a GitLab token</source>
        <translation>GitLab 令牌</translation>
    </message>
    <message>
        <source>a Google API key</source>
        <translation>Google API 密钥</translation>
    </message>
    <message>
        <source>a Hugging Face token</source>
        <translation>Hugging Face 令牌</translation>
    </message>
    <message>
        <source>a RAR archive</source>
        <translation>RAR 压缩文件</translation>
    </message>
    <message>
        <source>a Slack token</source>
        <translation>Slack 令牌</translation>
    </message>
    <message>
        <source>a Stripe key</source>
        <translation>Stripe 密钥</translation>
    </message>
    <message>
        <source>a bank account number</source>
        <translation>银行账号</translation>
    </message>
    <message>
        <source>a bzip2 archive</source>
        <translation>bzip2 压缩文件</translation>
    </message>
    <message>
        <source>its attention has fewer heads for keys than for queries</source>
        <translation>它的注意力中，键的头比查询的头少</translation>
    </message>
    <message>
        <source>the file is {name}. {formats}</source>
        <translation>该文件是{name}。{formats}</translation>
    </message>
    <message>
        <source>the file to write: its name ends in .jsonl, .csv or .parquet</source>
        <translation>要写入的文件，名称以 .jsonl、.csv 或 .parquet 结尾</translation>
    </message>
    <message>
        <source>the file type &quot;{suffix}&quot; is not supported. {formats}</source>
        <translation>不支持文件类型“{suffix}”。{formats}</translation>
    </message>
    <message>
        <source>the folder</source>
        <translation>文件夹</translation>
    </message>
    <message>
        <source>the folder holds more than {most:,} files.</source>
        <translation>文件夹中的文件超过 {most:,} 个。</translation>
    </message>
    <message>
        <source>the lists of rows are {names}, and none is named &quot;train&quot;.</source>
        <translation>行列表为 {names}，其中没有名为“train”的列表。</translation>
    </message>
    <message>
        <source>the page can&apos;t be read: {error}.</source>
        <translation>无法读取该页：{error}。</translation>
    </message>
    <message>
        <source>the parts of the page are nested too deeply.</source>
        <translation>网页的层级嵌套过深。</translation>
    </message>
    <message>
        <source>the row has no column {column}. Its columns are: {columns}.</source>
        <translation>该行没有 {column} 列。现有的列：{columns}。</translation>
    </message>
    <message>
        <source>the same as {place}.</source>
        <translation>与 {place} 相同。</translation>
    </message>
    <message>
        <source>the special token {token}</source>
        <translation>特殊词元 {token}</translation>
    </message>
    <message>
        <source>the training file to write</source>
        <translation>要写入的训练文件</translation>
    </message>
    <message>
        <source>there is no file that can be read. The files are: {names}.</source>
        <translation>没有可以读取的文件。现有文件：{names}。</translation>
    </message>
    <message>
        <source>this is a workbook or a document. Give its name the right ending, such as .xlsx or .docx.</source>
        <translation>这是工作簿或文档。请为它改用正确的扩展名，例如 .xlsx 或 .docx。</translation>
    </message>
    <message>
        <source>unpacks to more than {ratio} times its size</source>
        <translation>解压后超过其大小的 {ratio} 倍</translation>
    </message>
    <message>
        <source>write rows into a file of another kind</source>
        <translation>把行写入另一种格式的文件</translation>
    </message>
    <message>
        <source>{asked} now leads to {id}, which belongs to {owner}.</source>
        <translation>{asked} 现在指向 {id}，其所有者为 {owner}。</translation>
    </message>
    <message>
        <source>{folder} exists already.</source>
        <translation>{folder} 已存在。</translation>
    </message>
    <message>
        <source>{garbled}, which was probably {instead}</source>
        <translation>{garbled}，原文可能是 {instead}</translation>
    </message>
    <message>
        <source>{id}: the offline switch is on.</source>
        <translation>{id}：离线开关已打开。</translation>
    </message>
    <message>
        <source>{most:,} of {number:,} rows have the same answer.</source>
        <translation>{number:,} 行中有 {most:,} 行的回答相同。</translation>
    </message>
    <message>
        <source>{name} is in the library, version {number}.</source>
        <translation>{name} 已在数据集库中，版本 {number}。</translation>
    </message>
    <message>
        <source>{name} is no longer in the library. Its files are unchanged.</source>
        <translation>{name} 已从数据集库中移除，其文件没有改动。</translation>
    </message>
    <message>
        <source>{name}: the file {path} is missing.</source>
        <translation>{name}：文件 {path} 不存在。</translation>
    </message>
    <message>
        <source>{number:,} rows</source>
        <translation>{number:,} 行</translation>
    </message>
    <message>
        <source>{path} has changed since it was opened.</source>
        <translation>打开之后，{path} 已被修改。</translation>
    </message>
    <message>
        <source>{path} has files that are not read ({num}): {names}.</source>
        <translation>{path} 中有未读取的文件（{num} 个）：{names}。</translation>
    </message>
    <message>
        <source>{path} has lists of rows for evaluation, which are not read: {names}.</source>
        <translation>{path} 中有用于评估的行列表，未读取：{names}。</translation>
    </message>
    <message>
        <source>{path} has no valid run.json and spec.json.</source>
        <translation>{path} 中没有有效的 run.json 和 spec.json。</translation>
    </message>
    <message>
        <source>{path} has pages without text, which are pictures or empty ({num}): {pages}.</source>
        <translation>{path} 中有不含文本的页，为图片或空白（{num} 页）：{pages}。</translation>
    </message>
    <message>
        <source>{path} has splits that are not read: {names}.</source>
        <translation>{path} 中有未读取的划分：{names}。</translation>
    </message>
    <message>
        <source>{path} holds {inner}.</source>
        <translation>{path} 包含 {inner}。</translation>
    </message>
    <message>
        <source>{path} is already there</source>
        <translation>{path} 已存在</translation>
    </message>
    <message>
        <source>{path} is gone.</source>
        <translation>{path} 已不存在。</translation>
    </message>
    <message>
        <source>{path} is missing in {name}.</source>
        <translation>{name} 中缺少 {path}。</translation>
    </message>
    <message>
        <source>{path} is not an environment of this program.</source>
        <translation>{path} 不是此程序的环境。</translation>
    </message>
    <message>
        <source>{path} is not in {runs_dir}.</source>
        <translation>{path} 不在 {runs_dir} 中。</translation>
    </message>
    <message>
        <source>{path} is one of the files that are read. They are never changed.</source>
        <translation>{path} 是被读取的文件之一，这些文件不会被改动。</translation>
    </message>
    <message>
        <source>{path} is the file that you opened. Save under another name.</source>
        <translation>{path} 就是你打开的文件，请换一个名字保存。</translation>
    </message>
    <message>
        <source>{path} {problem}</source>
        <translation>{path} {problem}</translation>
    </message>
    <message>
        <source>{path}, line {line}, column {column}</source>
        <translation>{path}，第 {line} 行第 {column} 列</translation>
    </message>
    <message>
        <source>{path}, line {line}, column {column}: not valid JSON: {msg}.</source>
        <translation>{path}，第 {line} 行第 {column} 列：不是有效的 JSON：{msg}。</translation>
    </message>
    <message>
        <source>{path}, line {line}: {name} must take at least three parameters: the prompt, the answer and the expected answer.</source>
        <translation>{path} 第 {line} 行：{name} 至少要有三个参数：提示词、回答和预期回答。</translation>
    </message>
    <message>
        <source>{path}, page {page}</source>
        <translation>{path}，第 {page} 页</translation>
    </message>
    <message>
        <source>{path}, part {part}</source>
        <translation>{path}，第 {part} 部分</translation>
    </message>
    <message>
        <source>{path}: every row is longer than the context length of {limit} tokens. Rows: {num_rows:,}.</source>
        <translation>{path}：每一行都超过了 {limit} 个词元的上下文长度。共 {num_rows:,} 行。</translation>
    </message>
    <message>
        <source>{path}: every vote is a tie.</source>
        <translation>{path}：所有投票都是平局。</translation>
    </message>
    <message>
        <source>{path}: its only row, taken once.</source>
        <translation>{path}：只有一行，用一次。</translation>
    </message>
    <message>
        <source>{path}: its only row, taken {times} times.</source>
        <translation>{path}：只有一行，用 {times} 次。</translation>
    </message>
    <message>
        <source>{path}: its weight of {weight:g} ({setting}) is too low for an example. Examples in an epoch: {num:,}.</source>
        <translation>{path}：权重 {weight:g}（{setting}）太小，每轮 {num:,} 个样本中分不到一个。</translation>
    </message>
    <message>
        <source>{path}: no row has a token to learn within {limit} tokens. Rows: {num_rows:,}.</source>
        <translation>{path}：没有一行在前 {limit} 个词元内含有可学习的词元。共 {num_rows:,} 行。</translation>
    </message>
    <message>
        <source>{path}: number formats are not read, so that 5% is read as 0.05 and €12.50 as 12.5.</source>
        <translation>{path}：未读取单元格格式，因此 5% 读作 0.05，€12.50 读作 12.5。</translation>
    </message>
    <message>
        <source>{path}: the PDF is encrypted.</source>
        <translation>{path}：该 PDF 已加密。</translation>
    </message>
    <message>
        <source>{path}: the column &quot;{column}&quot; holds numbers from {low} to {high}, which don&apos;t say good or bad.</source>
        <translation>{path}：“{column}”列是 {low} 到 {high} 的数字，看不出好或差。</translation>
    </message>
    <message>
        <source>{path}: the document has no text.</source>
        <translation>{path}：文档中没有文本。</translation>
    </message>
    <message>
        <source>{path}: the pages are pictures without text ({num_pages}).</source>
        <translation>{path}：所有页都是不含文本的图片（{num_pages} 页）。</translation>
    </message>
    <message>
        <source>{path}: the rows don&apos;t say what a bigger model found likely. There is no column &quot;{column}&quot;.</source>
        <translation>{path}：各行没有保存更大的模型认为可能的词元。缺少“{column}”列。</translation>
    </message>
    <message>
        <source>{path}: this objective learns from preference pairs, and the rows were not recognized as such. They are read as: {format}.</source>
        <translation>{path}：该训练目标需要偏好对，但这些行不是偏好对，而是被识别为：{format}。</translation>
    </message>
    <message>
        <source>{path}: this objective learns from prompts with responses. The rows are read as: {format}.</source>
        <translation>{path}：此目标从提示词和回答中学习。这些行被识别为：{format}。</translation>
    </message>
    <message>
        <source>{path}: votes that are a tie are left out ({num:,}).</source>
        <translation>{path}：投票为平局的行不参与训练（{num:,}）。</translation>
    </message>
    <message>
        <source>{path}: {num_used:,} of {num_rows:,} rows is used.</source>
        <translation>{path}：使用 {num_rows:,} 行中的 {num_used:,} 行。</translation>
    </message>
    <message>
        <source>{path}: {reason}.</source>
        <translation>{path}：{reason}。</translation>
    </message>
    <message>
        <source>{phase} ...</source>
        <translation>{phase} ...</translation>
    </message>
    <message>
        <source>{place}, column &quot;{column}&quot;: the probabilities of the answer are missing or can&apos;t be read.</source>
        <translation>{place}，“{column}”列：回答的概率缺失或无法读取。</translation>
    </message>
    <message>
        <source>{place}, column &quot;{column}&quot;: {value} does not say which answer is better.</source>
        <translation>{place}，“{column}”列：{value} 没有说明哪个回答更好。</translation>
    </message>
    <message>
        <source>{place}: byte 0x{byte:02X} is not UTF-8. The file looks like {encoding}.</source>
        <translation>{place}：字节 0x{byte:02X} 不是 UTF-8。该文件看起来是 {encoding}。</translation>
    </message>
    <message>
        <source>{place}: no training row has the label &quot;{label}&quot;, so the model can&apos;t learn it.</source>
        <translation>{place}：没有训练行带有标签“{label}”，模型无法学会它。</translation>
    </message>
    <message>
        <source>{place}: the answers in the columns &quot;{chosen}&quot; and &quot;{rejected}&quot; are the same, so there is nothing to prefer.</source>
        <translation>{place}：列“{chosen}”和“{rejected}”中的回答相同，无从比较优劣。</translation>
    </message>
    <message>
        <source>{place}: the compressed data is damaged: {error}.</source>
        <translation>{place}：压缩数据已损坏：{error}。</translation>
    </message>
    <message>
        <source>{place}: the file unpacks to more than {ratio} times its size, which no data does.</source>
        <translation>{place}：文件解压后超过其大小的 {ratio} 倍，正常数据不会如此。</translation>
    </message>
    <message>
        <source>{place}: the label &quot;{label}&quot; is not a number.</source>
        <translation>{place}：标签“{label}”不是数字。</translation>
    </message>
    <message>
        <source>{place}: the probabilities of this row don&apos;t fit the base model: {reason}.</source>
        <translation>{place}：这一行的概率与基础模型不符：{reason}。</translation>
    </message>
    <message>
        <source>{place}: there are more than {most:,} different labels. Choose the column that holds classes, or have numbers predicted (Labels are numbers).</source>
        <translation>{place}：不同的标签超过 {most:,} 个。请选择存放类别的列，或改为预测数值（标签是数值）。</translation>
    </message>
    <message>
        <source>{place}: this row and all others have the label &quot;{label}&quot;. Sorting needs at least two classes.</source>
        <translation>{place}：这一行和其他所有行的标签都是“{label}”。分类至少需要两个类别。</translation>
    </message>
    <message>
        <source>{place}: whether an answer is right is a matter of wording in this data: the answers are sentences or longer texts. Choose another reward.</source>
        <translation>{place}：这份数据中的答案是句子或更长的文本，对错取决于措辞，无法判定。请选择其他奖励。</translation>
    </message>
    <message>
        <source>{place}the system gave no memory.</source>
        <translation>{place}系统无法分配内存。</translation>
    </message>
    <message>
        <source>{pointer}: rebuilding the environment did not help.</source>
        <translation>{pointer}：重建环境没有效果。</translation>
    </message>
    <message>
        <source>{rate:,.0f} rows/s</source>
        <translation>{rate:,.0f} 行/秒</translation>
    </message>
    <message>
        <source>{reason}.</source>
        <translation>{reason}。</translation>
    </message>
    <message>
        <source>{root} can be written.</source>
        <translation>{root} 可以写入。</translation>
    </message>
    <message>
        <source>{root} can&apos;t be used for them: {why}</source>
        <translation>不能放在 {root}：{why}</translation>
    </message>
    <message>
        <source>{root} has {num_chars} characters. Windows allows 260 in total, and the files inside need the rest.</source>
        <translation>{root} 有 {num_chars} 个字符。Windows 总共允许 260 个，其余要留给其中的文件。</translation>
    </message>
    <message>
        <source>{root} is not a full path.</source>
        <translation>{root} 不是完整路径。</translation>
    </message>
    <message>
        <source>{rows}. {good:,} can be trained on ({remarked:,} of them with a remark), {bad:,} can&apos;t.</source>
        <translation>共 {rows}：{good:,} 行可用于训练（其中 {remarked:,} 行有提示），{bad:,} 行不可用。</translation>
    </message>
    <message>
        <source>{rule}: there is no action {action}.</source>
        <translation>{rule}：没有 {action} 这种处理方式。</translation>
    </message>
    <message>
        <source>{sentence} would use this GPU. The installed build trains on the processor.</source>
        <translation>{sentence} 可以使用此显卡，而已安装的版本用处理器训练。</translation>
    </message>
    <message>
        <source>{sentence}.</source>
        <translation>{sentence}。</translation>
    </message>
    <message>
        <source>{sentence}. The installed build is for {title}.</source>
        <translation>{sentence}。已安装的版本适用于 {title}。</translation>
    </message>
    <message>
        <source>{severity}: {title} ({number:,}).</source>
        <translation>{severity}：{title}（{number:,}）。</translation>
    </message>
    <message>
        <source>{shortest} to {longest} tokens</source>
        <translation>{shortest} 到 {longest} 个词元</translation>
    </message>
    <message>
        <source>{size} of compiled kernels at {folder}.</source>
        <translation>{folder} 中有 {size} 已编译的内核。</translation>
    </message>
    <message>
        <source>{size} of main memory{free}.</source>
        <translation>内存 {size}{free}。</translation>
    </message>
    <message>
        <source>{size} on disk</source>
        <translation>占用磁盘 {size}</translation>
    </message>
    <message>
        <source>{size} to download</source>
        <translation>下载 {size}</translation>
    </message>
    <message>
        <source>{size}, programs have reserved {used} of {limit}</source>
        <translation>{size}，程序已预留 {used} / {limit}</translation>
    </message>
    <message>
        <source>{source}:
  {lines}</source>
        <translation>{source}：
  {lines}</translation>
    </message>
    <message>
        <source>{source}: each row is a single message, not a whole chat. A chat is one row: {{&quot;messages&quot;: [...]}}.</source>
        <translation>{source}：每行只有一条消息，而不是完整的对话。一个对话占一行：{{&quot;messages&quot;: [...]}}。</translation>
    </message>
    <message>
        <source>{speed:.0f} tokens/s</source>
        <translation>{speed:.0f} 词元/秒</translation>
    </message>
    <message>
        <source>{step} Then start Tunesmith again. It continues where it stopped.</source>
        <translation>{step}然后重新启动 Tunesmith，它会从中断处继续。</translation>
    </message>
    <message>
        <source>{step} To train on the processor instead: --profile cpu</source>
        <translation>{step}若要改用处理器训练：--profile cpu</translation>
    </message>
    <message>
        <source>{subject}: {title}</source>
        <translation>{subject}：{title}</translation>
    </message>
    <message>
        <source>{subject}: {title}, as requested</source>
        <translation>{subject}：{title}（按要求）</translation>
    </message>
    <message>
        <source>{teacher} is not bigger than the base model. There may be nothing to learn from it.</source>
        <translation>{teacher} 并不比基础模型大，可能没有可学的内容。</translation>
    </message>
    <message>
        <source>{teacher} is the base model itself.</source>
        <translation>{teacher} 就是基础模型本身。</translation>
    </message>
    <message>
        <source>{text} Models above 0.5 B parameters won&apos;t load.</source>
        <translation>{text}超过 5 亿参数的模型无法加载。</translation>
    </message>
    <message>
        <source>{text} Triton needs 14.42 or newer.</source>
        <translation>{text}Triton 需要 14.42 或更新版本。</translation>
    </message>
    <message>
        <source>{text} [{code}]</source>
        <translation>{text} [{code}]</translation>
    </message>
    <message>
        <source>{text} can&apos;t use a GPU. The profile {profile} needs the build for CUDA {wanted}.</source>
        <translation>{text} 无法使用显卡，配置 {profile} 需要适用于 CUDA {wanted} 的版本。</translation>
    </message>
    <message>
        <source>{text} is built for CUDA {cuda}. The profile {profile} needs CUDA {wanted}.</source>
        <translation>{text} 是为 CUDA {cuda} 构建的，配置 {profile} 需要 CUDA {wanted}。</translation>
    </message>
    <message>
        <source>{text} is installed instead of {pinned}.</source>
        <translation>已安装 {text}，应为 {pinned}。</translation>
    </message>
    <message>
        <source>{text} is too old for the other libraries.</source>
        <translation>{text} 对其他库来说过旧。</translation>
    </message>
    <message>
        <source>{text}.</source>
        <translation>{text}。</translation>
    </message>
    <message>
        <source>{text}. {need}</source>
        <translation>{text}。{need}</translation>
    </message>
    <message>
        <source>{text}.{held}</source>
        <translation>{text}。{held}</translation>
    </message>
    <message>
        <source>{text}{built}, profile {profile}.</source>
        <translation>{text}{built}，配置 {profile}。</translation>
    </message>
    <message>
        <source>{time} left</source>
        <translation>剩余 {time}</translation>
    </message>
    <message>
        <source>{title} can&apos;t use {names}.</source>
        <translation>{title} 无法使用 {names}。</translation>
    </message>
    <message>
        <source>{title} can&apos;t use {names}. CUDA 12.8 can.</source>
        <translation>{title} 无法使用 {names}，CUDA 12.8 可以。</translation>
    </message>
    <message>
        <source>{title} needs driver {wanted} or newer</source>
        <translation>{title} 需要 {wanted} 或更新的驱动</translation>
    </message>
    <message>
        <source>{title} needs the NVIDIA driver, which is missing</source>
        <translation>{title} 需要 NVIDIA 驱动，但尚未安装</translation>
    </message>
    <message>
        <source>{title}: {label}</source>
        <translation>{title}：{label}</translation>
    </message>
    <message>
        <source>{title}: {path}, {what}, {size}</source>
        <translation>{title}：{path}，{what}，{size}</translation>
    </message>
    <message>
        <source>{tokens:,} tokens, more than the context length of {limit:,}.</source>
        <translation>{tokens:,} 个词元，超过上下文长度 {limit:,}。</translation>
    </message>
    <message>
        <source>{total}, {free} free</source>
        <translation>{total}，可用 {free}</translation>
    </message>
    <message>
        <source>{trainer} of TRL computes this objective.</source>
        <translation>该目标由 TRL 的 {trainer} 计算。</translation>
    </message>
    <message>
        <source>{wanted} of {number} rows can&apos;t be held out. There are {groups} groups of rows that stay together.</source>
        <translation>无法从 {number} 行中留出 {wanted} 行。必须放在一起的行共有 {groups} 组。</translation>
    </message>
    <message>
        <source>{work}: {reason}. Compilers and PyTorch fail with that.</source>
        <translation>{work}：{reason}。编译器和 PyTorch 会因此失败。</translation>
    </message>
    <message>
        <source>{work}: {reason}. Compilers may exceed the 260 characters that Windows allows.</source>
        <translation>{work}：{reason}。编译器可能超出 Windows 允许的 260 个字符。</translation>
    </message>
    <message>
        <source>“{label}” {num:,}</source>
        <translation>“{label}” {num:,} 行</translation>
    </message>
    <message>
        <source>queued</source>
        <translation>等待中</translation>
    </message>
    <message>
        <source>preparing</source>
        <translation>准备中</translation>
    </message>
    <message>
        <source>running</source>
        <translation>运行中</translation>
    </message>
    <message>
        <source>stopping</source>
        <translation>正在停止</translation>
    </message>
    <message>
        <source>finalizing</source>
        <translation>正在保存</translation>
    </message>
    <message>
        <source>finished</source>
        <translation>已完成</translation>
    </message>
    <message>
        <source>stopped</source>
        <translation>已停止</translation>
    </message>
    <message>
        <source>interrupted</source>
        <translation>已中断</translation>
    </message>
    <message>
        <source>Checking the data</source>
        <translation>正在检查数据</translation>
    </message>
    <message>
        <source>Saving a repaired copy of the data</source>
        <translation>正在保存修复后的数据副本</translation>
    </message>
    <message>
        <source>Splitting the data</source>
        <translation>正在拆分数据</translation>
    </message>
    <message>
        <source>Mixing the data</source>
        <translation>正在混合数据</translation>
    </message>
    <message>
        <source>Converting the data</source>
        <translation>正在转换数据</translation>
    </message>
    <message>
        <source>convert a GGUF file into a model folder</source>
        <translation>把 GGUF 文件转换为模型文件夹</translation>
    </message>
    <message>
        <source>show what the training libraries see of this computer</source>
        <translation>显示训练库所看到的这台电脑</translation>
    </message>
    <message>
        <source>prove that the training environment works on this computer</source>
        <translation>测试训练环境能否在这台电脑上工作</translation>
    </message>
    <message>
        <source>time training steps on random rows</source>
        <translation>用随机数据测量训练步的速度</translation>
    </message>
    <message>
        <source>compare the trained model of a run with the model before it; a run in progress measures its held-out loss</source>
        <translation>将一次运行训练后的模型与运行之前的模型对比；进行中的运行会测量其留出损失</translation>
    </message>
    <message>
        <source>Reading the card of a model</source>
        <translation>正在读取模型卡片</translation>
    </message>
    <message>
        <source>Importing a model</source>
        <translation>正在导入模型</translation>
    </message>
    <message>
        <source>copy a model folder into the models of Tunesmith</source>
        <translation>将模型文件夹复制到 Tunesmith 的模型中</translation>
    </message>
    <message>
        <source>Verifying a model</source>
        <translation>正在校验模型</translation>
    </message>
    <message>
        <source>Making problems</source>
        <translation>正在出题</translation>
    </message>
    <message>
        <source>write problems of a task to learn from by rewards; a wrong name lists the tasks</source>
        <translation>写出某个任务的题目，用于从奖励中学习；名称有误时会列出所有任务</translation>
    </message>
    <message>
        <source>Rating a text</source>
        <translation>正在评判文本</translation>
    </message>
    <message>
        <source>let the model of a run that scores answers, sorts texts or checks steps rate a text of your own</source>
        <translation>用一次运行训练出的模型（给回答打分、给文本分类或检查步骤）评判你自己的文本</translation>
    </message>
    <message>
        <source>Reading the rows</source>
        <translation>正在读取各行</translation>
    </message>
    <message>
        <source>Finding rows</source>
        <translation>正在查找</translation>
    </message>
    <message>
        <source>Saving a copy of the rows</source>
        <translation>正在保存副本</translation>
    </message>
    <message>
        <source>install Tunesmith, or continue an interrupted installation</source>
        <translation>安装 Tunesmith，或继续中断的安装</translation>
    </message>
    <message>
        <source>show what is known about this computer</source>
        <translation>显示这台电脑的信息</translation>
    </message>
    <message>
        <source>check this computer and the installation</source>
        <translation>检查这台电脑和安装情况</translation>
    </message>
    <message>
        <source>repair what the checks find</source>
        <translation>修复检查发现的问题</translation>
    </message>
    <message>
        <source>switch back to the previous training environment</source>
        <translation>切换回之前的训练环境</translation>
    </message>
    <message>
        <source>list the installed environments, or show how two differ</source>
        <translation>列出已安装的环境，或显示两个环境的差别</translation>
    </message>
    <message>
        <source>remove what Tunesmith wrote, and runs and models only when named</source>
        <translation>删除 Tunesmith 写入的内容；只有指明时才删除运行和模型</translation>
    </message>
    <message>
        <source>open the window, after getting its libraries the first time</source>
        <translation>打开窗口，第一次会先获取所需的库</translation>
    </message>
    <message>
        <source>install the program&apos;s own files for this user, check or remove them</source>
        <translation>为当前用户安装程序自身的文件，检查或删除它们</translation>
    </message>
    <message>
        <source>set up training inside the Windows Subsystem for Linux</source>
        <translation>在 WSL 里准备训练</translation>
    </message>
    <message>
        <source>install reasoning-gym and jsonschema for tasks and rewards, after asking</source>
        <translation>征得同意后安装练习任务和奖励所需的 reasoning-gym 和 jsonschema</translation>
    </message>
    <message>
        <source>show the settings, such as mirror and proxy, or change them</source>
        <translation>显示或更改设置，例如镜像和代理</translation>
    </message>
    <message>
        <source>name the cause of a failure from its output</source>
        <translation>根据输出找出失败原因</translation>
    </message>
    <message>
        <source>Teacher</source>
        <translation>教师模型</translation>
    </message>
    <message>
        <source>File with one example per row: JSONL, JSON, CSV, Excel, Parquet, Arrow. Or text: TXT, Markdown, HTML, Word, PDF. A folder, ZIP, gz or zst of these works too.</source>
        <translation>每行一个样本的文件：JSONL、JSON、CSV、Excel、Parquet、Arrow；或文本：TXT、Markdown、HTML、Word、PDF。也可以是包含这些文件的文件夹、ZIP、gz 或 zst。</translation>
    </message>
    <message>
        <source>Text with label</source>
        <translation>带标签的文本</translation>
    </message>
    <message>
        <source>Prompts without answers</source>
        <translation>没有回答的提示词</translation>
    </message>
    <message>
        <source>Solution steps with labels</source>
        <translation>带标签的解题步骤</translation>
    </message>
    <message>
        <source>Text encoding</source>
        <translation>文本编码</translation>
    </message>
    <message>
        <source>Encoding of the file. The wrong one garbles accents and Chinese. UTF-16 is recognized automatically.</source>
        <translation>文本文件的编码。选错时中文等字符会变成乱码。UTF-16 会自动识别。</translation>
    </message>
    <message>
        <source>Big5 (Traditional Chinese)</source>
        <translation>Big5（繁体中文）</translation>
    </message>
    <message>
        <source>Shift JIS (Japanese)</source>
        <translation>Shift JIS（日文）</translation>
    </message>
    <message>
        <source>EUC-JP (Japanese)</source>
        <translation>EUC-JP（日文）</translation>
    </message>
    <message>
        <source>EUC-KR (Korean)</source>
        <translation>EUC-KR（韩文）</translation>
    </message>
    <message>
        <source>Windows-1251 (Cyrillic)</source>
        <translation>Windows-1251（西里尔文）</translation>
    </message>
    <message>
        <source>Sheet</source>
        <translation>工作表</translation>
    </message>
    <message>
        <source>Weight</source>
        <translation>权重</translation>
    </message>
    <message>
        <source>Most rows</source>
        <translation>最多行数</translation>
    </message>
    <message>
        <source>rows</source>
        <translation>行</translation>
    </message>
    <message>
        <source>Replay share</source>
        <translation>回放占比</translation>
    </message>
    <message>
        <source>Share of an epoch that comes from this file so that the model keeps what it knew, such as chats or general texts beside the documents that it reads. The files without a share are taken as before and set the length. 5 to 25 is usual, 0 is no replay.</source>
        <translation>每轮中来自这个文件的占比，用来让模型保留原有能力，例如在阅读文档时混入对话或通用文本。没有占比的文件照常使用，并决定每轮的长度。通常为 5 到 25，0 表示不回放。</translation>
    </message>
    <message>
        <source>Only reviewed rows</source>
        <translation>仅已审核的行</translation>
    </message>
    <message>
        <source>Leaves out rows that a model wrote and nobody has reviewed. They may be wrong. Rows that no model wrote count as reviewed.</source>
        <translation>略过由模型生成且尚未审核的行，这些行可能有误。不是模型生成的行视为已审核。</translation>
    </message>
    <message>
        <source>Special tokens in chats</source>
        <translation>对话中的特殊词元</translation>
    </message>
    <message>
        <source>What a special token such as &lt;|im_end|&gt; inside a message becomes. As control token it can end a turn.</source>
        <translation>消息中出现的特殊词元（如 &lt;|im_end|&gt;）如何处理。作为控制词元时，它可能提前结束一轮对话。</translation>
    </message>
    <message>
        <source>Control tokens</source>
        <translation>控制词元</translation>
    </message>
    <message>
        <source>What happens to examples that are longer than the context length. Split makes several examples of a long text, at a heading, paragraph or sentence. Chats and responses are cut instead, because a part would miss its question.</source>
        <translation>超过上下文长度的样本如何处理。“拆分”在标题、段落或句子处把长文本分成多个样本。对话和回答仍会截断，因为拆开的部分会缺少问题。</translation>
    </message>
    <message>
        <source>Split</source>
        <translation>拆分</translation>
    </message>
    <message>
        <source>Preferences (CPO)</source>
        <translation>偏好学习（CPO）</translation>
    </message>
    <message>
        <source>Preferences (DPO)</source>
        <translation>偏好学习（DPO）</translation>
    </message>
    <message>
        <source>Bigger model (GKD)</source>
        <translation>更大的模型（GKD）</translation>
    </message>
    <message>
        <source>Rewards (GRPO)</source>
        <translation>奖励（GRPO）</translation>
    </message>
    <message>
        <source>Stored probabilities (KD)</source>
        <translation>已保存的概率（KD）</translation>
    </message>
    <message>
        <source>Good and bad answers (KTO)</source>
        <translation>好坏回答（KTO）</translation>
    </message>
    <message>
        <source>Preferences (ORPO)</source>
        <translation>偏好学习（ORPO）</translation>
    </message>
    <message>
        <source>Scores of steps (process reward model)</source>
        <translation>步骤评分（过程奖励模型）</translation>
    </message>
    <message>
        <source>Scores (reward model)</source>
        <translation>评分（奖励模型）</translation>
    </message>
    <message>
        <source>Rewards (RLOO)</source>
        <translation>奖励（RLOO）</translation>
    </message>
    <message>
        <source>Preferences (SimPO)</source>
        <translation>偏好学习（SimPO）</translation>
    </message>
    <message>
        <source>DPO loss</source>
        <translation>DPO 损失</translation>
    </message>
    <message>
        <source>How DPO compares the two answers. Sigmoid is the original. IPO and the losses per token suit answers of very different lengths, robust suits labels that are often wrong.</source>
        <translation>DPO 如何比较两个回答。Sigmoid 是最初的形式。IPO 和按词元计算的损失适合长度相差很大的回答，Robust 适合标注经常出错的数据。</translation>
    </message>
    <message>
        <source>Sigmoid</source>
        <translation>Sigmoid</translation>
    </message>
    <message>
        <source>Sigmoid, per token</source>
        <translation>Sigmoid（按词元）</translation>
    </message>
    <message>
        <source>Hinge</source>
        <translation>Hinge</translation>
    </message>
    <message>
        <source>IPO, per token</source>
        <translation>IPO（按词元）</translation>
    </message>
    <message>
        <source>EXO</source>
        <translation>EXO</translation>
    </message>
    <message>
        <source>NCA</source>
        <translation>NCA</translation>
    </message>
    <message>
        <source>Robust</source>
        <translation>Robust</translation>
    </message>
    <message>
        <source>BCO</source>
        <translation>BCO</translation>
    </message>
    <message>
        <source>SPPO</source>
        <translation>SPPO</translation>
    </message>
    <message>
        <source>APO-zero</source>
        <translation>APO-zero</translation>
    </message>
    <message>
        <source>APO-down</source>
        <translation>APO-down</translation>
    </message>
    <message>
        <source>DiscoPOP</source>
        <translation>DiscoPOP</translation>
    </message>
    <message>
        <source>KTO loss</source>
        <translation>KTO 损失</translation>
    </message>
    <message>
        <source>APO-zero, unpaired</source>
        <translation>APO-zero（非成对）</translation>
    </message>
    <message>
        <source>Weight of good answers</source>
        <translation>好的回答的权重</translation>
    </message>
    <message>
        <source>How much each good answer counts. With fewer good than bad answers, raise it until both sides count about the same in total.</source>
        <translation>每个好的回答的分量。好的回答少于差的回答时，提高它，使两方的总分量大致相同。</translation>
    </message>
    <message>
        <source>Weight of bad answers</source>
        <translation>差的回答的权重</translation>
    </message>
    <message>
        <source>How much each bad answer counts. With fewer bad than good answers, raise it until both sides count about the same in total.</source>
        <translation>每个差的回答的分量。差的回答少于好的回答时，提高它，使两方的总分量大致相同。</translation>
    </message>
    <message>
        <source>Beta</source>
        <translation>Beta</translation>
    </message>
    <message>
        <source>usual value</source>
        <translation>常用值</translation>
    </message>
    <message>
        <source>Base model beside</source>
        <translation>与基础模型对照</translation>
    </message>
    <message>
        <source>Each step</source>
        <translation>每一步</translation>
    </message>
    <message>
        <source>Once before the first step</source>
        <translation>只在第一步之前</translation>
    </message>
    <message>
        <source>Reference adapter</source>
        <translation>参考适配器</translation>
    </message>
    <message>
        <source>Folder of another LoRA adapter on the same base model, with which answers are compared. Empty compares with the model as it was before the run, which suits almost every run.</source>
        <translation>同一基础模型上另一个 LoRA 适配器的文件夹，用作回答的对比对象。留空则与运行之前的模型对比，几乎适合所有运行。</translation>
    </message>
    <message>
        <source>Label smoothing</source>
        <translation>标签平滑</translation>
    </message>
    <message>
        <source>Share of pairs that you expect to be labeled the wrong way round. 0 trusts every pair.</source>
        <translation>预计标反的偏好对所占的比例。0 表示相信每一对。</translation>
    </message>
    <message>
        <source>Margin</source>
        <translation>间隔</translation>
    </message>
    <message>
        <source>By how much SimPO wants the better answer to be rated higher than the worse one.</source>
        <translation>SimPO 要求较好的回答比较差的回答高出多少评分。</translation>
    </message>
    <message>
        <source>Weight of the SFT loss</source>
        <translation>SFT 损失的权重</translation>
    </message>
    <message>
        <source>How much learning to write the better answer counts beside preferring it. Empty takes the usual value: 1 for CPO and ORPO, else 0, which is none of it. DPO alone learns to tell the answers apart, but may never write a style that is new to the model. With 1 it learns to write it as well.</source>
        <translation>除了学会偏好较好的回答之外，学会写出它所占的比重。留空取常用值：CPO 和 ORPO 为 1，其他为 0，即不学。单用 DPO 能学会区分两种回答，但对模型来说全新的风格可能始终写不出来。设为 1 时也会学着写。</translation>
    </message>
    <message>
        <source>GRPO loss</source>
        <translation>GRPO 损失</translation>
    </message>
    <message>
        <source>How GRPO averages over tokens and limits updates. DAPO counts every token alike. GRPO is the original, which favors short answers among good ones.</source>
        <translation>GRPO 如何对词元取平均并限制更新。DAPO 平等对待每个词元。GRPO 是原始做法，在好回答中偏向较短的。</translation>
    </message>
    <message>
        <source>DAPO, per token</source>
        <translation>DAPO，按词元</translation>
    </message>
    <message>
        <source>Dr. GRPO</source>
        <translation>Dr. GRPO</translation>
    </message>
    <message>
        <source>CISPO</source>
        <translation>CISPO</translation>
    </message>
    <message>
        <source>SAPO</source>
        <translation>SAPO</translation>
    </message>
    <message>
        <source>LUSPO</source>
        <translation>LUSPO</translation>
    </message>
    <message>
        <source>VESPO</source>
        <translation>VESPO</translation>
    </message>
    <message>
        <source>Ratio of</source>
        <translation>概率比的对象</translation>
    </message>
    <message>
        <source>What is compared with the model that wrote the answers. The answer as a whole is called GSPO.</source>
        <translation>拿什么与写出回答时的模型相比。以整个回答为单位的做法称为 GSPO。</translation>
    </message>
    <message>
        <source>Each token</source>
        <translation>每个词元</translation>
    </message>
    <message>
        <source>The answer</source>
        <translation>整个回答</translation>
    </message>
    <message>
        <source>Rewards divided by the spread of</source>
        <translation>奖励除以谁的标准差</translation>
    </message>
    <message>
        <source>Makes strong and weak rewards comparable. Usual divides by the spread of the answers to one prompt for GRPO, and not at all for RLOO.</source>
        <translation>使强弱不同的奖励可以相互比较。“通常”在 GRPO 中除以同一提示词各回答的标准差，在 RLOO 中不做除法。</translation>
    </message>
    <message>
        <source>Usual</source>
        <translation>常用</translation>
    </message>
    <message>
        <source>Answers to one prompt</source>
        <translation>同一提示词的回答</translation>
    </message>
    <message>
        <source>All answers of a step</source>
        <translation>一步中的所有回答</translation>
    </message>
    <message>
        <source>Clipping</source>
        <translation>裁剪</translation>
    </message>
    <message>
        <source>How far the probability of a token may move in one round before it is left alone: 0.2 for a fifth. It has an effect with several updates per round.</source>
        <translation>一轮中词元概率最多变化多少，超出后不再更新：0.2 表示五分之一。每轮更新多次时才有作用。</translation>
    </message>
    <message>
        <source>Clipping upward</source>
        <translation>向上裁剪</translation>
    </message>
    <message>
        <source>The same for tokens that become more likely. DAPO recommends 0.28. 0 takes the value of Clipping.</source>
        <translation>同上，用于概率上升的词元。DAPO 建议 0.28。0 表示取“裁剪”的值。</translation>
    </message>
    <message>
        <source>like downward</source>
        <translation>与向下相同</translation>
    </message>
    <message>
        <source>Largest ratio</source>
        <translation>比率上限</translation>
    </message>
    <message>
        <source>How many times likelier a token of a bad answer may count at most, such as 4. It keeps single tokens from ruling a step. 0 sets no bound. It has an effect with several updates per round.</source>
        <translation>差的回答中，一个词元的概率比最多按多少倍计，例如 4，以免个别词元左右整步更新。0 表示不设上限。每轮多次更新时才起作用。</translation>
    </message>
    <message>
        <source>no bound</source>
        <translation>不设上限</translation>
    </message>
    <message>
        <source>Share of the written answer</source>
        <translation>所写回答的占比</translation>
    </message>
    <message>
        <source>How much the answer as it was written counts beside what the bigger model found likely. With 0 the model learns from the probabilities alone, with 1 from the answer alone, as in SFT.</source>
        <translation>除了更大的模型认为可能的内容之外，所写的回答本身占多大比重。0 表示只从概率中学习，1 表示只从回答中学习，与 SFT 相同。</translation>
    </message>
    <message>
        <source>Labels are numbers</source>
        <translation>标签是数值</translation>
    </message>
    <message>
        <source>Predict a number, such as a rating, instead of sorting into classes.</source>
        <translation>预测一个数值（例如评分），而不是分类。</translation>
    </message>
    <message>
        <source>Classes</source>
        <translation>类别</translation>
    </message>
    <message>
        <source>Names of the classes, in their order. Empty takes them from the data as they come.</source>
        <translation>类别的名称及顺序。留空则按数据中出现的顺序。</translation>
    </message>
    <message>
        <source>Answers per prompt</source>
        <translation>每条提示词的回答数</translation>
    </message>
    <message>
        <source>How many answers the model writes to each prompt. They are compared with each other.</source>
        <translation>模型为每条提示词写多少个回答。这些回答会相互比较。</translation>
    </message>
    <message>
        <source>More answers tell better from worse more clearly and take longer.</source>
        <translation>回答越多，越能分清好坏，但耗时越长。</translation>
    </message>
    <message>
        <source>Longest answer</source>
        <translation>最长回答</translation>
    </message>
    <message>
        <source>Where an answer is cut while the model practices.</source>
        <translation>模型练习时，回答在此长度处截断。</translation>
    </message>
    <message>
        <source>Longer answers take more time and memory.</source>
        <translation>回答越长，耗时和内存越多。</translation>
    </message>
    <message>
        <source>Temperature</source>
        <translation>温度</translation>
    </message>
    <message>
        <source>How random the answers are while the model practices. Training uses the same temperature.</source>
        <translation>模型练习时回答的随机程度。训练使用同样的温度。</translation>
    </message>
    <message>
        <source>Higher values try more. Lower ones stay with what the model finds likely.</source>
        <translation>值越高，尝试越多；值越低，越贴近模型认为可能的内容。</translation>
    </message>
    <message>
        <source>Updates per round</source>
        <translation>每轮更新次数</translation>
    </message>
    <message>
        <source>How often the model is trained on the same answers before it writes new ones.</source>
        <translation>模型在写新回答之前，用同一批回答训练多少次。</translation>
    </message>
    <message>
        <source>More learns more from each answer. Clipping then limits how far the model moves.</source>
        <translation>次数越多，从每个回答中学到的越多。裁剪会限制模型的变化幅度。</translation>
    </message>
    <message>
        <source>Ignore cut answers</source>
        <translation>忽略被截断的回答</translation>
    </message>
    <message>
        <source>Learns nothing from answers that were cut at the longest length, as DAPO recommends.</source>
        <translation>不从达到最大长度而被截断的回答中学习，这是 DAPO 的建议。</translation>
    </message>
    <message>
        <source>Reward</source>
        <translation>奖励</translation>
    </message>
    <message>
        <source>What is rewarded. Right answer compares with the answer in the data, as suits it: numbers, choices, JSON or short texts. Your own Python file can reward anything.</source>
        <translation>奖励什么。“正确答案”会以合适的方式与数据中的答案比对：数字、选项、JSON 或短文本。您自己的 Python 文件可以奖励任何内容。</translation>
    </message>
    <message>
        <source>Right answer</source>
        <translation>正确答案</translation>
    </message>
    <message>
        <source>Exactly the answer</source>
        <translation>与答案完全一致</translation>
    </message>
    <message>
        <source>Right number</source>
        <translation>数字正确</translation>
    </message>
    <message>
        <source>Pattern found</source>
        <translation>匹配模式</translation>
    </message>
    <message>
        <source>Valid JSON</source>
        <translation>有效的 JSON</translation>
    </message>
    <message>
        <source>Length</source>
        <translation>长度</translation>
    </message>
    <message>
        <source>Valid tool call</source>
        <translation>有效的工具调用</translation>
    </message>
    <message>
        <source>Weight of the reward</source>
        <translation>奖励权重</translation>
    </message>
    <message>
        <source>What the reward is multiplied by. A negative weight is a punishment.</source>
        <translation>奖励乘以该值。负权重表示惩罚。</translation>
    </message>
    <message>
        <source>Pattern</source>
        <translation>模式</translation>
    </message>
    <message>
        <source>For the reward for a pattern: a regular expression that is found in good answers.</source>
        <translation>用于模式奖励：好回答中会出现的正则表达式。</translation>
    </message>
    <message>
        <source>Python file</source>
        <translation>Python 文件</translation>
    </message>
    <message>
        <source>For the reward for a language: its code, such as en, de or zh.</source>
        <translation>用于语言奖励：语言代码，例如 en、de 或 zh。</translation>
    </message>
    <message>
        <source>Shortest answer</source>
        <translation>最短回答</translation>
    </message>
    <message>
        <source>For the reward for length: answers with fewer tokens get less, in proportion.</source>
        <translation>用于长度奖励：词元更少的回答按比例得到更少的奖励。</translation>
    </message>
    <message>
        <source>For the reward for length: answers with more tokens get less, and none from twice as many on.</source>
        <translation>用于长度奖励：词元更多的回答得到更少的奖励，达到两倍及以上则没有。</translation>
    </message>
    <message>
        <source>Bigger model</source>
        <translation>更大的模型</translation>
    </message>
    <message>
        <source>Weights of the bigger model</source>
        <translation>更大的模型的权重</translation>
    </message>
    <message>
        <source>NF4 needs about a quarter of the memory, and the bigger model answers a little less exactly.</source>
        <translation>NF4 约需四分之一的显存，更大的模型的回答会略欠精确。</translation>
    </message>
    <message>
        <source>How the two models are compared (beta of the generalized Jensen-Shannon divergence). At 0 the model learns to cover everything that the bigger model might say (forward KL), at 1 it keeps to what that one finds most likely (reverse KL). 0.5 is in between.</source>
        <translation>两个模型如何比较（广义 Jensen-Shannon 散度的 beta）。为 0 时，模型学习覆盖更大的模型可能说的一切（前向 KL）；为 1 时，只学更大的模型认为最可能的内容（反向 KL）。0.5 介于两者之间。</translation>
    </message>
    <message>
        <source>In so many of the steps the model answers the prompts itself and learns what the bigger model would have said at each word (lambda of GKD). With none it learns from the answers in the data only, with all from its own answers only. Half of them is a good value where the data has prompts.</source>
        <translation>在这一比例的步数中，模型自己回答提示词，并学习更大的模型在每个词处会怎么说（GKD 的 lambda）。比例为零时只从数据中的回答学习，为全部时只从自己的回答学习。数据中有提示词时，一半是合适的值。</translation>
    </message>
    <message>
        <source>LoRA trains a small adapter beside the model, which stays as it is. Full fine-tuning trains the model&apos;s own weights, which can learn more and needs much more memory and disk space. The others are kinds of adapters that run in plain PyTorch. Very small ones such as VeRA and IA3 usually need a learning rate of 0.001 or more.</source>
        <translation>LoRA 在模型旁边训练一个小的适配器，模型本身不变。全参数微调训练模型自身的权重，能学到更多，但需要多得多的内存和磁盘空间。其他选项是以普通 PyTorch 运行的其他类型的适配器。VeRA 和 IA3 这样很小的适配器通常需要 0.001 或更高的学习率。</translation>
    </message>
    <message>
        <source>OFT</source>
        <translation>OFT</translation>
    </message>
    <message>
        <source>VeRA</source>
        <translation>VeRA</translation>
    </message>
    <message>
        <source>IA3</source>
        <translation>IA3</translation>
    </message>
    <message>
        <source>LoHa</source>
        <translation>LoHa</translation>
    </message>
    <message>
        <source>LoKr</source>
        <translation>LoKr</translation>
    </message>
    <message>
        <source>RandLoRA</source>
        <translation>RandLoRA</translation>
    </message>
    <message>
        <source>MiSS</source>
        <translation>MiSS</translation>
    </message>
    <message>
        <source>DeLoRA</source>
        <translation>DeLoRA</translation>
    </message>
    <message>
        <source>Folder of a LoRA adapter to continue training, such as one from an earlier run on this base model. Rank, alpha, modules, layers, rsLoRA, DoRA and bias come from that adapter. Empty starts with a new adapter.</source>
        <translation>要继续训练的 LoRA 适配器文件夹，例如此前在该基础模型上的运行所生成的适配器。秩、alpha、模块、层、rsLoRA、DoRA 和偏置均取自该适配器。留空则从新的适配器开始。</translation>
    </message>
    <message>
        <source>Layers</source>
        <translation>层</translation>
    </message>
    <message>
        <source>Numbers of the layers that get an adapter, such as 0-7, 20. Empty takes all layers.</source>
        <translation>带适配器的层的编号，例如 0-7, 20。留空表示所有层。</translation>
    </message>
    <message>
        <source>Fewer layers need less memory and learn less.</source>
        <translation>层数越少，需要的内存越少，学到的也越少。</translation>
    </message>
    <message>
        <source>What the adapter starts with. The usual random numbers suit most runs. Orthogonal makes the directions of the adapter independent from the start. It needs an even rank and frozen weights at 16 bits. PiSSA and OLoRA start from the strongest parts of the frozen weights and often learn faster. EVA starts from what the layers see in your data.</source>
        <translation>适配器开始时的数值。常用的随机数适合大多数训练。正交让适配器的各个方向一开始就相互独立，它需要偶数的秩和 16 位的冻结权重。PiSSA 和 OLoRA 从冻结权重中最强的部分开始，通常学得更快。EVA 从各层在数据上看到的内容开始。</translation>
    </message>
    <message>
        <source>PiSSA and OLoRA save an adapter of twice the rank.</source>
        <translation>PiSSA 和 OLoRA 保存的适配器的秩是两倍。</translation>
    </message>
    <message>
        <source>PiSSA</source>
        <translation>PiSSA</translation>
    </message>
    <message>
        <source>PiSSA, fast</source>
        <translation>PiSSA（快速）</translation>
    </message>
    <message>
        <source>OLoRA</source>
        <translation>OLoRA</translation>
    </message>
    <message>
        <source>EVA, from the data</source>
        <translation>EVA（来自数据）</translation>
    </message>
    <message>
        <source>Frozen weights</source>
        <translation>冻结权重</translation>
    </message>
    <message>
        <source>None keeps the model at 16 bits (LoRA). NF4 stores its linear layers and experts in 4 bits (QLoRA). Int8 stores its linear layers in 8 bits (LLM.int8), closer to the original, and trains in plain PyTorch.</source>
        <translation>“无”让模型保持 16 位（LoRA）。NF4 把线性层和专家存成 4 位（QLoRA）。Int8 把线性层存成 8 位（LLM.int8），更接近原模型，用普通 PyTorch 训练。</translation>
    </message>
    <message>
        <source>8-bit states need a quarter of the optimizer memory.</source>
        <translation>8 位状态只占优化器内存的四分之一。</translation>
    </message>
    <message>
        <source>Learning rate</source>
        <translation>学习率</translation>
    </message>
    <message>
        <source>How fast the model learns, at the peak of the schedule. Too high makes the loss jump, too low learns little.</source>
        <translation>学习的快慢（调度的最高点）。过高会使损失突增，过低则学不到东西。</translation>
    </message>
    <message>
        <source>Higher learns faster and breaks down sooner.</source>
        <translation>越大学得越快，也越容易崩溃。</translation>
    </message>
    <message>
        <source>Weight decay</source>
        <translation>权重衰减</translation>
    </message>
    <message>
        <source>Pulls the trained weights toward zero, which limits overfitting. 0 turns it off.</source>
        <translation>把训练的权重拉向零，可减轻过拟合。0 表示关闭。</translation>
    </message>
    <message>
        <source>Beta 1</source>
        <translation>Beta 1</translation>
    </message>
    <message>
        <source>First-moment decay: how long past gradients count. Higher is smoother and slower to react. 0.9 suits most runs.</source>
        <translation>一阶矩衰减：过去的梯度影响多久。越高越平滑，反应越慢。多数运行用 0.9。</translation>
    </message>
    <message>
        <source>Beta 2</source>
        <translation>Beta 2</translation>
    </message>
    <message>
        <source>Second-moment decay: how long the size of past gradients counts. 0.999 suits most runs.</source>
        <translation>二阶矩衰减：过去梯度的大小影响多久。多数运行用 0.999。</translation>
    </message>
    <message>
        <source>Epsilon</source>
        <translation>Epsilon</translation>
    </message>
    <message>
        <source>Keeps tiny gradients from causing huge updates. Rarely worth changing.</source>
        <translation>防止极小的梯度引起过大的更新。一般无需修改。</translation>
    </message>
    <message>
        <source>Gradient clipping</source>
        <translation>梯度裁剪</translation>
    </message>
    <message>
        <source>NEFTune noise</source>
        <translation>NEFTune 噪声</translation>
    </message>
    <message>
        <source>Adds random noise to the embeddings of the training rows, which can make answers better after little data. 5 to 15 are usual. Evaluations see no noise.</source>
        <translation>给训练行的嵌入加上随机噪声，数据较少时可以让回答更好。常用 5 到 15。评估时没有噪声。</translation>
    </message>
    <message>
        <source>Epochs</source>
        <translation>轮数</translation>
    </message>
    <message>
        <source>Steps</source>
        <translation>步数</translation>
    </message>
    <message>
        <source>Number of optimizer steps. 0 uses epochs instead.</source>
        <translation>优化器步数。0 表示按轮数。</translation>
    </message>
    <message>
        <source>steps</source>
        <translation>步</translation>
    </message>
    <message>
        <source>Name of the sheet of a workbook that is read. Empty reads the first whose columns are recognized.</source>
        <translation>要读取的工作表名称。留空则读取第一个能识别出各列的工作表。</translation>
    </message>
    <message>
        <source>How much of an epoch comes from this file, compared with the other files that have a weight: with 3 and 1, three quarters and one quarter. An epoch stays as long as all files together, so rows of a small file repeat and rows of a large file take turns. 0 takes every row once.</source>
        <translation>与其他有权重的文件相比，一轮中有多少样本来自这个文件：权重 3 和 1 表示四分之三和四分之一。一轮的长度始终等于所有文件行数之和，因此小文件的行会重复，大文件的行轮流使用。0 表示每行用一次。</translation>
    </message>
    <message>
        <source>Most rows of this file that are used, held-out rows included. The seed chooses which. Repeats by weight don&apos;t count. Empty uses all rows.</source>
        <translation>这个文件最多使用多少行，包括留出的行。使用哪些行由随机种子决定，按权重重复的不计。留空则使用全部行。</translation>
    </message>
    <message>
        <source>What the model learns. SFT learns to write the answers in the data. DPO, SimPO, ORPO and CPO learn from pairs to prefer one answer over another, KTO from single answers that are labeled good or bad. GRPO and RLOO learn from rewards for what the model writes, GKD from a bigger model, KD from what a bigger model found likely when it wrote the answers in the data. A reward model learns from pairs to score answers and writes none, a process reward model scores each step of one. Classes or numbers are learned from texts with a label.</source>
        <translation>模型学习什么。SFT 学习写出数据中的回答。DPO、SimPO、ORPO 和 CPO 从成对回答中学习偏好其中一个，KTO 从标为好或坏的单个回答中学习。GRPO 和 RLOO 从模型所写内容得到的奖励中学习，GKD 向更大的模型学习，KD 从更大的模型写下数据中的回答时认为可能的内容中学习。奖励模型从成对回答中学习给回答打分，自己不写回答；过程奖励模型给回答的每个步骤打分。类别或数值从带标签的文本中学习。</translation>
    </message>
    <message>
        <source>Classes or numbers</source>
        <translation>类别或数值</translation>
    </message>
    <message>
        <source>How KTO rates an answer. The original compares it with how far the model has moved on other answers, which takes more time. APO-zero does without, and suits good answers that are better than what the model writes.</source>
        <translation>KTO 如何评价一个回答。原始方法会与模型在其他回答上的变化作比较，耗时更多。APO-zero 不需要这一步，适合好的回答优于模型自己所写内容的情况。</translation>
    </message>
    <message>
        <source>How strictly preferences are followed. In DPO and KTO, higher stays closer to the base model. Empty takes the usual value: 0.1, for SimPO 2.</source>
        <translation>遵循偏好的严格程度。在 DPO 和 KTO 中，数值越高越接近基础模型。留空使用常用值：0.1，SimPO 为 2。</translation>
    </message>
    <message>
        <source>Your Python file</source>
        <translation>您的 Python 文件</translation>
    </message>
    <message>
        <source>For your own reward: a file with a function reward(prompt, answer, expected) that returns a number. More parameters get the columns of the row by their names.</source>
        <translation>用于自定义奖励：一个文件，其中的函数 reward(prompt, answer, expected) 返回一个数。更多参数按名称取得该行的其他列。</translation>
    </message>
    <message>
        <source>For the reward for a JSON schema: a file with the schema. Answers that it allows are rewarded.</source>
        <translation>用于 JSON 模式奖励：包含模式的文件。符合该模式的回答得到奖励。</translation>
    </message>
    <message>
        <source>For the score of a reward model: the folder of a run of yours that learned to score answers, of its export, or of another model for it. It must have the tokens and the chat template of the trained model.</source>
        <translation>用于奖励模型的分数：学会给回答打分的训练、其导出结果或其他奖励模型所在的文件夹。它的词元和对话模板必须与所训练的模型相同。</translation>
    </message>
    <message>
        <source>Between 0 and 1</source>
        <translation>换算到 0 到 1 之间</translation>
    </message>
    <message>
        <source>For the score of a reward model: makes it a number between 0 and 1, with 0.5 for a score of 0.</source>
        <translation>用于奖励模型的分数：换算成 0 到 1 之间的数，分数为 0 时得 0.5。</translation>
    </message>
    <message>
        <source>Folder or hub id of the bigger model that is learned from. It must have the same tokenizer as the base model, as models of one family do.</source>
        <translation>所学习的更大模型的文件夹或 hub 编号。它必须与基础模型使用相同的分词器，同一系列的模型通常如此。</translation>
    </message>
    <message>
        <source>None keeps the bigger model at 16 bits. NF4 stores its linear layers and experts in 4 bits.</source>
        <translation>“无”让更大的模型保持 16 位。NF4 以 4 位存储其线性层和专家。</translation>
    </message>
    <message>
        <source>Forward or backward</source>
        <translation>正向或反向</translation>
    </message>
    <message>
        <source>Share of own answers</source>
        <translation>自写回答的比例</translation>
    </message>
    <message>
        <source>Own answers correct the model&apos;s own mistakes. Writing them takes longer.</source>
        <translation>自写回答能纠正模型自己的错误，但写出它们需要更多时间。</translation>
    </message>
    <message>
        <source>Longest own answer</source>
        <translation>自写回答的最大长度</translation>
    </message>
    <message>
        <source>Where an answer that the model writes itself is cut.</source>
        <translation>模型自己写的回答在此处截断。</translation>
    </message>
    <message>
        <source>What is trained</source>
        <translation>训练对象</translation>
    </message>
    <message>
        <source>LoRA adapter</source>
        <translation>LoRA 适配器</translation>
    </message>
    <message>
        <source>Full fine-tuning</source>
        <translation>全量微调</translation>
    </message>
    <message>
        <source>Trained parts</source>
        <translation>训练的部分</translation>
    </message>
    <message>
        <source>Which weights are trained: &quot;all&quot;, or a list of embeddings, norms, layers, numbers of layers such as 20-31, and module names such as up_proj.</source>
        <translation>训练哪些权重：“all”表示全部，或用列表指定 embeddings、norms、layers、层号（如 20-31）和模块名（如 up_proj）。</translation>
    </message>
    <message>
        <source>Fewer parts need less memory and learn less.</source>
        <translation>部分越少，占用的显存越少，学到的也越少。</translation>
    </message>
    <message>
        <source>Trained weights</source>
        <translation>训练得到的权重</translation>
    </message>
    <message>
        <source>Number format in which trained weights are kept. float32 is exact. bfloat16 rounds each update up or down at random, so that small updates still count on average.</source>
        <translation>训练权重的存储格式。float32 是精确的。bfloat16 对每次更新随机向上或向下舍入，因此很小的更新平均来看仍然有效。</translation>
    </message>
    <message>
        <source>bfloat16 needs half the memory for weights and gradients.</source>
        <translation>bfloat16 让权重和梯度占用的显存减半。</translation>
    </message>
    <message>
        <source>Start from</source>
        <translation>起点</translation>
    </message>
    <message>
        <source>Share of adapter inputs that training ignores at random. 0.05 to 0.1 limits overfitting on little data, 0 is fastest. Above 0, a mixture&apos;s experts get no adapter.</source>
        <translation>训练时随机忽略的适配器输入比例。数据少时用 0.05 到 0.1 可减轻过拟合，0 最快。大于 0 时，混合专家模型的专家没有适配器。</translation>
    </message>
    <message>
        <source>Rank per module</source>
        <translation>各模块的秩</translation>
    </message>
    <message>
        <source>Modules with another rank than the others, such as q_proj = 32, layers.0.*.up_proj = 8. The end of a module&apos;s name is enough, and * stands for anything.</source>
        <translation>秩与其他模块不同的模块，例如 q_proj = 32, layers.0.*.up_proj = 8。只写模块名称的末尾即可，* 代表任意内容。</translation>
    </message>
    <message>
        <source>Alpha per module</source>
        <translation>各模块的 alpha</translation>
    </message>
    <message>
        <source>Modules with another alpha than the others, written like their ranks. It is divided by the module&apos;s own rank.</source>
        <translation>alpha 与其他模块不同的模块，写法与秩相同。alpha 会除以该模块自己的秩。</translation>
    </message>
    <message>
        <source>Also learns how strong each weight row is, which can come closer to full fine-tuning. Together with dropout it runs in plain PyTorch. With DoRA, a mixture&apos;s experts get no adapter.</source>
        <translation>同时学习每一行权重的强度，效果可以更接近全量微调。与 dropout 同时使用时以普通 PyTorch 运行。使用 DoRA 时，混合专家模型的专家没有适配器。</translation>
    </message>
    <message>
        <source>Initial values</source>
        <translation>初始值</translation>
    </message>
    <message>
        <source>Gaussian</source>
        <translation>高斯</translation>
    </message>
    <message>
        <source>Orthogonal</source>
        <translation>正交</translation>
    </message>
    <message>
        <source>Embeddings and output layer</source>
        <translation>嵌入和输出层</translation>
    </message>
    <message>
        <source>Whether the tables that turn tokens into numbers and back are trained whole beside the adapter. New words only trains the rows of the new words. All suits a new language or a field with a vocabulary of its own, and much text.</source>
        <translation>是否在适配器之外整体训练把词元变成数字、再变回词元的两张表。“仅新词”只训练新词所在的行。“全部”适合新语言或有自己词汇的领域，并且需要大量文本。</translation>
    </message>
    <message>
        <source>All needs several GiB more and makes checkpoints and the adapter as large as these tables.</source>
        <translation>“全部”要多占几 GiB，检查点和适配器也会和这两张表一样大。</translation>
    </message>
    <message>
        <source>Frozen</source>
        <translation>冻结</translation>
    </message>
    <message>
        <source>New words only</source>
        <translation>仅新词</translation>
    </message>
    <message>
        <source>Other modules trained whole</source>
        <translation>其他整体训练的模块</translation>
    </message>
    <message>
        <source>Names of further modules that are trained whole and saved with the adapter, such as norm or input_layernorm. Training then runs in plain PyTorch.</source>
        <translation>其他要整体训练并随适配器保存的模块名称，例如 norm 或 input_layernorm。此时使用普通 PyTorch 训练。</translation>
    </message>
    <message>
        <source>Each needs memory for its weights, gradients and optimizer.</source>
        <translation>每个模块都要为权重、梯度和优化器占用内存。</translation>
    </message>
    <message>
        <source>NF4 needs about a quarter of the weight memory and is a little slower. Int8 needs half and is slower.</source>
        <translation>NF4 只需约四分之一的权重显存，速度稍慢。Int8 需要一半，速度更慢。</translation>
    </message>
    <message>
        <source>8-bit (LLM.int8)</source>
        <translation>8 位（LLM.int8）</translation>
    </message>
    <message>
        <source>AdamW in 32 bits, or with 8-bit states. Full fine-tuning can also take Adafactor, whose states need next to no memory, and Muon, which makes the update of each matrix even in all directions.</source>
        <translation>32 位的 AdamW，或使用 8 位状态。全量微调还可以选择 Adafactor（状态几乎不占显存）和 Muon（让每个矩阵的更新在各个方向上均匀）。</translation>
    </message>
    <message>
        <source>Adafactor</source>
        <translation>Adafactor</translation>
    </message>
    <message>
        <source>Muon</source>
        <translation>Muon</translation>
    </message>
    <message>
        <source>LoRA+ ratio</source>
        <translation>LoRA+ 比例</translation>
    </message>
    <message>
        <source>How many times faster the second matrix of each adapter (B) learns than the first (A). 1 is usual. With LoRA+, 4 to 16 can learn hard tasks sooner, best at half the learning rate. Too high makes the loss jump.</source>
        <translation>每个适配器的第二个矩阵（B）的学习速度是第一个（A）的多少倍。通常为 1。使用 LoRA+ 时，4 到 16 可以更快学会困难的任务，最好同时把学习率减半。过高会让损失跳动。</translation>
    </message>
    <message>
        <source>Rate of embeddings</source>
        <translation>嵌入学习率倍数</translation>
    </message>
    <message>
        <source>By what the learning rate is multiplied for trained embeddings and the output layer. They learn best 2 to 10 times slower than the adapter, so 0.1 to 0.5.</source>
        <translation>训练嵌入和输出层时学习率要乘的倍数。它们比适配器慢 2 到 10 倍时效果最好，即 0.1 到 0.5。</translation>
    </message>
    <message>
        <source>Maximum gradient norm. Lower tames jumps in the loss, too low slows learning. 1 suits most runs. 0 turns it off. Full fine-tuning with 0 and without gradient accumulation updates each layer as soon as its gradient is known, which saves memory.</source>
        <translation>梯度范数上限。较低可抑制损失突增，过低会减慢学习。多数运行用 1，设为 0 则关闭。全量微调设为 0 且不累积梯度时，每一层的梯度一算出就更新该层，可节省显存。</translation>
    </message>
    <message>
        <source>Passes over the data, when no number of steps is set. With weights, one pass takes as many examples as all files have rows together.</source>
        <translation>未设定步数时，训练数据要过几遍。设了权重时，一遍的样本数等于所有文件的行数之和。</translation>
    </message>
    <message>
        <source>by epochs</source>
        <translation>按轮数</translation>
    </message>
    <message>
        <source>Micro-batch size</source>
        <translation>微批次大小</translation>
    </message>
    <message>
        <source>Examples that go through the model together.</source>
        <translation>一起通过模型的样本数。</translation>
    </message>
    <message>
        <source>examples</source>
        <translation>个样本</translation>
    </message>
    <message>
        <source>Higher needs more memory and is faster on a GPU.</source>
        <translation>越大越占内存，在 GPU 上也更快。</translation>
    </message>
    <message>
        <source>Gradient accumulation</source>
        <translation>梯度累积</translation>
    </message>
    <message>
        <source>Micro-batches per step. Times the micro-batch size, this is the batch size.</source>
        <translation>每步的微批次数。乘以微批次大小就是批次大小。</translation>
    </message>
    <message>
        <source>micro-batches</source>
        <translation>个微批次</translation>
    </message>
    <message>
        <source>Scheduler</source>
        <translation>调度方式</translation>
    </message>
    <message>
        <source>How the learning rate changes after the warm-up.</source>
        <translation>预热之后学习率的变化方式。</translation>
    </message>
    <message>
        <source>Warm-up</source>
        <translation>预热</translation>
    </message>
    <message>
        <source>Steps in which the learning rate rises from zero, so that the first step changes nothing. Empty takes 5 steps, a tenth of the run at most, and none in a run of fewer than 20 steps.</source>
        <translation>学习率从零开始上升的步数，因此第一步不会改变任何东西。留空则为 5 步，最多占训练的十分之一，少于 20 步的训练不预热。</translation>
    </message>
    <message>
        <source>5, fewer in short runs</source>
        <translation>5，短训练更少</translation>
    </message>
    <message>
        <source>Seed</source>
        <translation>随机种子</translation>
    </message>
    <message>
        <source>The same seed gives the same run.</source>
        <translation>种子相同，运行就相同。</translation>
    </message>
    <message>
        <source>Shuffle</source>
        <translation>打乱顺序</translation>
    </message>
    <message>
        <source>Take the rows in a new random order in each epoch.</source>
        <translation>每一轮都用新的随机顺序取行。</translation>
    </message>
    <message>
        <source>Evaluation data</source>
        <translation>评估数据</translation>
    </message>
    <message>
        <source>Separate file for evaluation (validation or test set). Empty holds out a share of the training data.</source>
        <translation>单独的评估文件（验证集或测试集）。留空则从训练数据中留出一部分。</translation>
    </message>
    <message>
        <source>Held-out share</source>
        <translation>留出比例</translation>
    </message>
    <message>
        <source>Rows to hold out from training and evaluate on (validation or test set), when there is no separate file. 0 turns evaluation off.</source>
        <translation>没有单独文件时，从训练数据中留出多少行用于评估（验证集或测试集）。0 表示不评估。</translation>
    </message>
    <message>
        <source>%</source>
        <translation>%</translation>
    </message>
    <message>
        <source>Group column</source>
        <translation>分组列</translation>
    </message>
    <message>
        <source>Rows with the same value in this column, such as a customer or a document, are all trained or all held out. Use it when rows of a group give each other&apos;s answers away. Applies to the held-out share only.</source>
        <translation>这一列的值相同的行（例如同一客户或同一文档）要么全部训练，要么全部留出。当同组的行会互相泄露答案时使用。仅用于按比例留出评估数据。</translation>
    </message>
    <message>
        <source>Evaluate every</source>
        <translation>评估间隔</translation>
    </message>
    <message>
        <source>Steps between evaluations. 0 evaluates ten times per run.</source>
        <translation>两次评估之间的步数。0 表示每次运行评估十次。</translation>
    </message>
    <message>
        <source>ten times per run</source>
        <translation>每次运行十次</translation>
    </message>
    <message>
        <source>Early stopping</source>
        <translation>提前停止</translation>
    </message>
    <message>
        <source>Stops after this many evaluations without a better loss. 0 never stops early.</source>
        <translation>连续这么多次评估损失没有改善就停止。0 表示不提前停止。</translation>
    </message>
    <message>
        <source>evaluations</source>
        <translation>次评估</translation>
    </message>
    <message>
        <source>never</source>
        <translation>从不</translation>
    </message>
    <message>
        <source>Sample prompts</source>
        <translation>示例提示词</translation>
    </message>
    <message>
        <source>Sample every</source>
        <translation>示例间隔</translation>
    </message>
    <message>
        <source>with each evaluation</source>
        <translation>每次评估时</translation>
    </message>
    <message>
        <source>Sample length</source>
        <translation>示例长度</translation>
    </message>
    <message>
        <source>Longest time between saves</source>
        <translation>保存的最长间隔</translation>
    </message>
    <message>
        <source>A checkpoint is saved at least this often.</source>
        <translation>至少每隔这么久保存一个检查点。</translation>
    </message>
    <message>
        <source>Save every</source>
        <translation>保存间隔</translation>
    </message>
    <message>
        <source>minutes</source>
        <translation>分钟</translation>
    </message>
    <message>
        <source>Keep</source>
        <translation>保留</translation>
    </message>
    <message>
        <source>Which bias vectors are trained too. None suits most models.</source>
        <translation>同时训练哪些偏置。多数模型选“无”。</translation>
    </message>
    <message>
        <source>None</source>
        <translation>无</translation>
    </message>
    <message>
        <source>LoRA layers only</source>
        <translation>仅 LoRA 层</translation>
    </message>
    <message>
        <source>4-bit (NF4)</source>
        <translation>4 位（NF4）</translation>
    </message>
    <message>
        <source>AdamW</source>
        <translation>AdamW</translation>
    </message>
    <message>
        <source>AdamW, 8-bit</source>
        <translation>AdamW（8 位）</translation>
    </message>
    <message>
        <source>Linear</source>
        <translation>线性</translation>
    </message>
    <message>
        <source>Cosine</source>
        <translation>余弦</translation>
    </message>
    <message>
        <source>Constant</source>
        <translation>恒定</translation>
    </message>
    <message>
        <source>Number of verified checkpoints that are kept.</source>
        <translation>保留的已校验检查点数量。</translation>
    </message>
    <message>
        <source>checkpoints</source>
        <translation>个检查点</translation>
    </message>
    <message>
        <source>Device</source>
        <translation>设备</translation>
    </message>
    <message>
        <source>System</source>
        <translation>系统</translation>
    </message>
    <message>
        <source>Steps between checkpoints. 0 saves ten times per run.</source>
        <translation>检查点之间的步数。0 表示每次运行保存十次。</translation>
    </message>
    <message>
        <source>Where the engine runs: this system, or Linux inside Windows (WSL) after it was set up.</source>
        <translation>引擎在哪里运行：本系统，或安装好的 Windows 内的 Linux（WSL）。</translation>
    </message>
    <message>
        <source>Fused kernels</source>
        <translation>融合内核</translation>
    </message>
    <message>
        <source>Trains with Tunesmith&apos;s own fused kernels. Off trains in plain PyTorch.</source>
        <translation>使用 Tunesmith 自带的融合内核训练；关闭后使用普通 PyTorch 训练。</translation>
    </message>
    <message>
        <source>Off is slower and needs more memory. The results are the same.</source>
        <translation>关闭后速度较慢且需要更多内存；结果相同。</translation>
    </message>
    <message>
        <source>8-bit products</source>
        <translation>8 位乘法</translation>
    </message>
    <message>
        <source>Multiply with frozen weights in 8-bit floating point if a test finds this model accurate enough.</source>
        <translation>如果测试表明此模型足够精确，则以 8 位浮点数与冻结权重相乘。</translation>
    </message>
    <message>
        <source>Faster on RTX 40, RTX 50 and H100 class GPUs. Costs a little accuracy and more memory.</source>
        <translation>在 RTX 40、RTX 50 和 H100 级 GPU 上更快；精度略有损失，并占用更多内存。</translation>
    </message>
    <message>
        <source>Activation checkpointing</source>
        <translation>激活检查点</translation>
    </message>
    <message>
        <source>Recomputes activations instead of storing them. Use it when a run does not fit.</source>
        <translation>重新计算激活值而不保存。显存放不下时使用。</translation>
    </message>
    <message>
        <source>Needs much less memory and is about a third slower.</source>
        <translation>大幅节省内存，速度约慢三分之一。</translation>
    </message>
    <message>
        <source>CPU threads</source>
        <translation>CPU 线程</translation>
    </message>
    <message>
        <source>CPU threads for training. 0 uses all cores.</source>
        <translation>训练使用的 CPU 线程数。0 表示使用全部核心。</translation>
    </message>
    <message>
        <source>Language</source>
        <translation>语言</translation>
    </message>
    <message>
        <source>Light, dark or high contrast, or whatever your desktop uses.</source>
        <translation>浅色、深色或高对比度，也可以跟随桌面。</translation>
    </message>
    <message>
        <source>Scales all text, in addition to the system&apos;s own scaling.</source>
        <translation>在系统缩放的基础上再缩放所有文字。</translation>
    </message>
    <message>
        <source>Prevents sleep while a run is in progress and the window is open.</source>
        <translation>有运行在进行且窗口打开时，阻止电脑睡眠。</translation>
    </message>
    <message>
        <source>Shows a desktop notification when a run finishes, stops or fails.</source>
        <translation>运行完成、停止或失败时显示桌面通知。</translation>
    </message>
    <message>
        <source>When off, closing the window leaves the run in the background without asking.</source>
        <translation>关闭此项后，关窗时不再询问，运行在后台继续。</translation>
    </message>
    <message>
        <source>Mirror for Python packages. Leave empty to use this computer&apos;s pip and uv settings.</source>
        <translation>Python 软件包的镜像地址。留空则使用这台电脑上 pip 和 uv 的设置。</translation>
    </message>
    <message>
        <source>PyTorch&apos;s wheel index, or a mirror with the same folders.</source>
        <translation>PyTorch 的 wheel 索引地址，或目录结构相同的镜像。</translation>
    </message>
    <message>
        <source>Model hub</source>
        <translation>模型站</translation>
    </message>
    <message>
        <source>Work offline</source>
        <translation>离线工作</translation>
    </message>
    <message>
        <source>Nothing is searched for or downloaded from the model hub.</source>
        <translation>不在模型站搜索，也不从中下载。</translation>
    </message>
    <message>
        <source>Installs packages from this folder of wheel files. Nothing is downloaded.</source>
        <translation>从这个 wheel 文件夹安装软件包，不下载任何内容。</translation>
    </message>
    <message>
        <source>system</source>
        <translation>跟随系统</translation>
    </message>
    <message>
        <source>Continuing with {step}.</source>
        <translation>改用{step}继续。</translation>
    </message>
    <message>
        <source>Objective</source>
        <translation>训练目标</translation>
    </message>
    <message>
        <source>Adapter</source>
        <translation>适配器</translation>
    </message>
    <message>
        <source>Quantization</source>
        <translation>量化</translation>
    </message>
    <message>
        <source>Questions that the model answers during training. Held-out rows are asked without being named here: before and after training, and in between while that takes at most a tenth of the time.</source>
        <translation>模型在训练中回答的问题。留出的数据行无需写在这里，也会被提问：训练前后各一次，训练中只要用时不超过十分之一也会提问。</translation>
    </message>
    <message>
        <source>Steps between answers to the sample prompts. 0 takes them with each evaluation. Questions of held-out rows don&apos;t follow this setting.</source>
        <translation>每隔多少步回答一次示例提示词。0 表示每次评估时回答。留出数据行的提问不受此设置影响。</translation>
    </message>
    <message>
        <source>Most tokens of an answer to a sample prompt. An answer to a held-out row is cut somewhat behind the length of the expected one.</source>
        <translation>示例提示词的回答最多有多少词元。对留出行的回答，按略长于期望回答的长度截断。</translation>
    </message>
    <message>
        <source>auto uses the GPU if there is one. cpu, cuda or cuda:1 chooses a device, numbered as in nvidia-smi.</source>
        <translation>auto 在有显卡时使用显卡。也可指定 cpu、cuda 或 cuda:1，编号与 nvidia-smi 一致。</translation>
    </message>
    <message>
        <source>This system</source>
        <translation>本机</translation>
    </message>
    <message>
        <source>WSL</source>
        <translation>WSL</translation>
    </message>
    <message>
        <source>all cores</source>
        <translation>全部核心</translation>
    </message>
    <message>
        <source>Of the window, the commands and what they write.</source>
        <translation>窗口、命令以及它们写出的内容所用的语言。</translation>
    </message>
    <message>
        <source>en</source>
        <translation>英语</translation>
    </message>
    <message>
        <source>zh_CN</source>
        <translation>简体中文</translation>
    </message>
    <message>
        <source>Appearance</source>
        <translation>外观</translation>
    </message>
    <message>
        <source>light</source>
        <translation>浅色</translation>
    </message>
    <message>
        <source>dark</source>
        <translation>深色</translation>
    </message>
    <message>
        <source>high_contrast</source>
        <translation>高对比度</translation>
    </message>
    <message>
        <source>Text size</source>
        <translation>文字大小</translation>
    </message>
    <message>
        <source>Keep the computer awake</source>
        <translation>让电脑保持唤醒</translation>
    </message>
    <message>
        <source>Notify when a run ends</source>
        <translation>运行结束时通知</translation>
    </message>
    <message>
        <source>Ask before closing during a run</source>
        <translation>运行中关闭窗口前询问</translation>
    </message>
    <message>
        <source>Package index</source>
        <translation>软件包索引</translation>
    </message>
    <message>
        <source>PyTorch index</source>
        <translation>PyTorch 索引</translation>
    </message>
    <message>
        <source>Proxy</source>
        <translation>代理</translation>
    </message>
    <message>
        <source>Where models are searched for and downloaded from.</source>
        <translation>在哪里搜索和下载模型。</translation>
    </message>
    <message>
        <source>huggingface</source>
        <translation>Hugging Face</translation>
    </message>
    <message>
        <source>modelscope</source>
        <translation>ModelScope</translation>
    </message>
    <message>
        <source>Address of the model hub</source>
        <translation>模型站地址</translation>
    </message>
    <message>
        <source>For a mirror of the hub. Leave empty for the hub&apos;s own address.</source>
        <translation>用于模型站的镜像。留空则使用模型站自己的地址。</translation>
    </message>
    <message>
        <source>Folder of wheels</source>
        <translation>wheel 文件夹</translation>
    </message>
    <message>
        <source>Data folder</source>
        <translation>数据文件夹</translation>
    </message>
    <message>
        <source>Long paths</source>
        <translation>长路径</translation>
    </message>
    <message>
        <source>Memory of the computer</source>
        <translation>电脑内存</translation>
    </message>
    <message>
        <source>Python</source>
        <translation>Python</translation>
    </message>
    <message>
        <source>Files of the program</source>
        <translation>程序文件</translation>
    </message>
    <message>
        <source>Python of the launcher environment</source>
        <translation>启动环境的 Python</translation>
    </message>
    <message>
        <source>Files of the launcher environment</source>
        <translation>启动环境的文件</translation>
    </message>
    <message>
        <source>Python of the training environment</source>
        <translation>训练环境的 Python</translation>
    </message>
    <message>
        <source>Files of the training environment</source>
        <translation>训练环境的文件</translation>
    </message>
    <message>
        <source>GPU and driver</source>
        <translation>GPU 与驱动</translation>
    </message>
    <message>
        <source>GPU memory</source>
        <translation>显存</translation>
    </message>
    <message>
        <source>PyTorch</source>
        <translation>PyTorch</translation>
    </message>
    <message>
        <source>Visual C++ runtime</source>
        <translation>Visual C++ 运行库</translation>
    </message>
    <message>
        <source>Triton</source>
        <translation>Triton</translation>
    </message>
    <message>
        <source>4-bit library (bitsandbytes)</source>
        <translation>4 位库（bitsandbytes）</translation>
    </message>
    <message>
        <source>Libraries</source>
        <translation>程序库</translation>
    </message>
    <message>
        <source>Compile caches</source>
        <translation>编译缓存</translation>
    </message>
    <message>
        <source>Other environments</source>
        <translation>其他环境</translation>
    </message>
    <message>
        <source>Interrupted installations</source>
        <translation>中断的安装</translation>
    </message>
    <message>
        <source>Variables of your shell</source>
        <translation>终端的环境变量</translation>
    </message>
    <message>
        <source>Security software</source>
        <translation>安全软件</translation>
    </message>
    <message>
        <source>Windows Subsystem for Linux</source>
        <translation>适用于 Linux 的 Windows 子系统</translation>
    </message>
    <message>
        <source>This computer</source>
        <translation>这台电脑</translation>
    </message>
    <message>
        <source>System libraries</source>
        <translation>系统库</translation>
    </message>
    <message>
        <source>Launcher environment</source>
        <translation>启动环境</translation>
    </message>
    <message>
        <source>Training environment</source>
        <translation>训练环境</translation>
    </message>
    <message>
        <source>Base model of the example</source>
        <translation>示例的基础模型</translation>
    </message>
    <message>
        <source>Libraries for training</source>
        <translation>训练用的程序库</translation>
    </message>
    <message>
        <source>Libraries of the window</source>
        <translation>窗口用的程序库</translation>
    </message>
    <message>
        <source>Download</source>
        <translation>下载</translation>
    </message>
    <message>
        <source>Copy</source>
        <translation>复制</translation>
    </message>
    <message>
        <source>Example</source>
        <translation>示例</translation>
    </message>
    <message>
        <source>Import the libraries</source>
        <translation>导入依赖库</translation>
    </message>
    <message>
        <source>Reach the GPUs</source>
        <translation>访问 GPU</translation>
    </message>
    <message>
        <source>Multiply matrices on every device</source>
        <translation>在每个设备上计算矩阵乘法</translation>
    </message>
    <message>
        <source>Compile and run a Triton kernel</source>
        <translation>编译并运行 Triton 内核</translation>
    </message>
    <message>
        <source>Compute with 4-bit weights</source>
        <translation>用 4 位权重计算</translation>
    </message>
    <message>
        <source>Train a tiny LoRA model</source>
        <translation>训练一个小型 LoRA 模型</translation>
    </message>
    <message>
        <source>{path} can&apos;t be written.</source>
        <translation>无法写入 {path}。</translation>
    </message>
    <message>
        <source>{reason} Nothing was saved.</source>
        <translation>{reason}没有保存任何内容。</translation>
    </message>
    <message>
        <source>{reason} Step {step} is saved, but the adapter isn&apos;t.</source>
        <translation>{reason}第 {step} 步已保存，但适配器未保存。</translation>
    </message>
    <message>
        <source>{reason} Steps after {step} were not saved.</source>
        <translation>{reason}第 {step} 步之后的训练未保存。</translation>
    </message>
    <message>
        <source>paused</source>
        <translation>已暂停</translation>
    </message>
    <message>
        <source>Paused: {message} The run keeps everything in memory and continues by itself.</source>
        <translation>已暂停：{message}训练的全部状态保留在内存中，稍后会自动继续。</translation>
    </message>
    <message>
        <source>a date or time</source>
        <translation>日期或时间</translation>
    </message>
    <message>
        <source>a duration</source>
        <translation>时长</translation>
    </message>
    <message>
        <source>a quote inside a field is not written twice.</source>
        <translation>字段内的引号没有写成两个。</translation>
    </message>
    <message>
        <source>a second list of rows begins here, &quot;{name}&quot;. Put all rows into one list.</source>
        <translation>从这里开始是第二个数据列表“{name}”。请把所有数据放进同一个列表。</translation>
    </message>
    <message>
        <source>a value that can&apos;t be read</source>
        <translation>无法读取的值</translation>
    </message>
    <message>
        <source>binary data</source>
        <translation>二进制数据</translation>
    </message>
    <message>
        <source>holds {what}</source>
        <translation>包含{what}</translation>
    </message>
    <message>
        <source>more text follows the list of rows.</source>
        <translation>数据列表之后还有多余的内容。</translation>
    </message>
    <message>
        <source>more than {max_values:,} values</source>
        <translation>超过 {max_values:,} 个的值</translation>
    </message>
    <message>
        <source>more than {num_bytes:,} bytes</source>
        <translation>超过 {num_bytes:,} 字节的内容</translation>
    </message>
    <message>
        <source>one row holds more than {max_values:,} values</source>
        <translation>一行中的值超过 {max_values:,} 个</translation>
    </message>
    <message>
        <source>reading on would take {num_mib:,} MiB at once. The most is {max_mib:,} MiB.</source>
        <translation>继续读取一次需要 {num_mib:,} MiB 内存，上限为 {max_mib:,} MiB。</translation>
    </message>
    <message>
        <source>text that is not UTF-8</source>
        <translation>不是 UTF-8 的文本</translation>
    </message>
    <message>
        <source>the Parquet file is damaged: {error}.</source>
        <translation>Parquet 文件已损坏：{error}。</translation>
    </message>
    <message>
        <source>the row is longer than {max_row_characters:,} characters.</source>
        <translation>该行超过 {max_row_characters:,} 个字符。</translation>
    </message>
    <message>
        <source>the unknown role {speaker}</source>
        <translation>的角色 {speaker} 无法识别</translation>
    </message>
    <message>
        <source>too many blank lines follow each other.</source>
        <translation>连续的空行过多。</translation>
    </message>
    <message>
        <source>{path} is read-only. You can look at the runs there, but not start, resume or delete any.</source>
        <translation>{path} 是只读的。可以查看其中的运行，但不能开始、继续或删除。</translation>
    </message>
    <message>
        <source>{path} was moved, renamed or deleted.</source>
        <translation>{path} 已被移动、重命名或删除。</translation>
    </message>
    <message>
        <source>{folder} contains files that Python would run at every start and that Tunesmith did not install: {names}.</source>
        <translation>{folder} 中有 Python 每次启动都会执行、但并非由 Tunesmith 安装的文件：{names}。</translation>
    </message>
    <message>
        <source>Proxy for all downloads. Leave empty to use this computer&apos;s settings. A password in the address is saved in a file that only your account can read.</source>
        <translation>所有下载使用的代理。留空则使用这台电脑的设置。地址中的密码会保存在只有你的账户能读取的文件中。</translation>
    </message>
    <message>
        <source>Too much time or memory for one row</source>
        <translation>一行数据耗费了过多时间或内存</translation>
    </message>
    <message>
        <source>The chat template, the tokenizer or this row needed far more than usual, or crashed the process that reads it. It may be damaged, or made to do harm.</source>
        <translation>对话模板、分词器或这一行所需的时间或内存远超正常水平，或使读取它的进程崩溃。它可能已损坏，也可能含有恶意内容。</translation>
    </message>
    <message>
        <source>Correct or remove the named row, or choose another model.</source>
        <translation>请修改或删除所指出的行，或选择其他模型。</translation>
    </message>
    <message>
        <source>{path}, rows {first} to {last}</source>
        <translation>{path}，第 {first} 至 {last} 行</translation>
    </message>
    <message>
        <source>{place}: {work} {what}.</source>
        <translation>{place}：{work}{what}。</translation>
    </message>
    <message>
        <source>Preparing the data</source>
        <translation>正在准备数据</translation>
    </message>
    <message>
        <source>Preparing a sample prompt</source>
        <translation>正在准备示例提示词</translation>
    </message>
    <message>
        <source>The chat template rejects the prompt: {error}</source>
        <translation>对话模板不接受该提示词：{error}</translation>
    </message>
    <message>
        <source>ended its process with exit code {code}</source>
        <translation>使其进程结束，退出代码 {code}</translation>
    </message>
    <message>
        <source>loading the tokenizer</source>
        <translation>加载分词器</translation>
    </message>
    <message>
        <source>needed too much memory</source>
        <translation>占用内存过多</translation>
    </message>
    <message>
        <source>reading the next row</source>
        <translation>读取下一行</translation>
    </message>
    <message>
        <source>the chat template</source>
        <translation>对话模板</translation>
    </message>
    <message>
        <source>the chat template of a sample prompt</source>
        <translation>示例提示词的对话模板</translation>
    </message>
    <message>
        <source>the tokenizer</source>
        <translation>分词器</translation>
    </message>
    <message>
        <source>took longer than {seconds:,.0f} s</source>
        <translation>用时超过 {seconds:,.0f} 秒</translation>
    </message>
    <message>
        <source>wrote more than {limit:,} characters</source>
        <translation>输出超过 {limit:,} 个字符</translation>
    </message>
    <message>
        <source>{path}: the chat template can&apos;t be used: {error}. It failed at {place}.</source>
        <translation>{path}：对话模板无法使用：{error}。出错位置：{place}。</translation>
    </message>
    <message>
        <source>{place}: the row has no column {column}. Its columns are: {columns}.</source>
        <translation>{place}：该行没有列 {column}。现有的列：{columns}。</translation>
    </message>
    <message>
        <source>Choose another model, or replace the chat template with one that works.</source>
        <translation>请选择其他模型，或换用可以正常工作的对话模板。</translation>
    </message>
    <message>
        <source>Free some space, then resume the run.</source>
        <translation>请先腾出一些空间，然后继续该训练。</translation>
    </message>
    <message>
        <source>Free some space, then start the run again.</source>
        <translation>请先腾出一些空间，然后重新开始该训练。</translation>
    </message>
    <message>
        <source>Make the folder writable, then resume the run.</source>
        <translation>请先让该文件夹可以写入，然后继续该训练。</translation>
    </message>
    <message>
        <source>Make the folder writable, then start the run again.</source>
        <translation>请先让该文件夹可以写入，然后重新开始该训练。</translation>
    </message>
    <message>
        <source>The disk couldn&apos;t be written.</source>
        <translation>磁盘无法写入。</translation>
    </message>
    <message>
        <source>a setting is missing or has a value that this model can&apos;t have</source>
        <translation>缺少某项设置，或某项设置的值不适用于该模型</translation>
    </message>
    <message>
        <source>adapter</source>
        <translation>适配器</translation>
    </message>
    <message>
        <source>paused: the disk can&apos;t be written</source>
        <translation>已暂停：磁盘无法写入</translation>
    </message>
    <message>
        <source>paused: the disk is full</source>
        <translation>已暂停：磁盘已满</translation>
    </message>
    <message>
        <source>skipped rows</source>
        <translation>跳过的行</translation>
    </message>
    <message>
        <source>the chat template is not UTF-8 text, see byte {number}</source>
        <translation>对话模板不是 UTF-8 文本，见第 {number} 个字节</translation>
    </message>
    <message>
        <source>the content</source>
        <translation>文件内容</translation>
    </message>
    <message>
        <source>the setting {name} is missing</source>
        <translation>缺少设置 {name}</translation>
    </message>
    <message>
        <source>{heads} attention heads can&apos;t share the {rows} rows of {name}</source>
        <translation>{heads} 个注意力头无法均分 {name} 的 {rows} 行</translation>
    </message>
    <message>
        <source>{name} is &quot;{value}&quot;, which this model does not support</source>
        <translation>{name} 的值为 &quot;{value}&quot;，该模型不支持</translation>
    </message>
    <message>
        <source>{num_skipped} of {num_rows}</source>
        <translation>{num_skipped} / {num_rows}</translation>
    </message>
    <message>
        <source>Answers before and after</source>
        <translation>训练前后的回答</translation>
    </message>
    <message>
        <source>Ask it something that is not among the rows before you rely on it.</source>
        <translation>正式使用前，请用数据之外的问题试一试。</translation>
    </message>
    <message>
        <source>Files</source>
        <translation>文件</translation>
    </message>
    <message>
        <source>Hold out a share of the rows and train again. A falling training loss alone may be memorizing.</source>
        <translation>请留出一部分数据行后重新训练。仅训练损失下降可能只是死记硬背。</translation>
    </message>
    <message>
        <source>Improved a little: the held-out loss fell from {before} to {after}.</source>
        <translation>略有改善：留出数据的损失从 {before} 降到 {after}。</translation>
    </message>
    <message>
        <source>Improved a lot: the held-out loss fell from {before} to {after}.</source>
        <translation>明显改善：留出数据的损失从 {before} 降到 {after}。</translation>
    </message>
    <message>
        <source>Loss by step</source>
        <translation>各步的损失</translation>
    </message>
    <message>
        <source>Lower the learning rate, and look at the rows: answers may not belong to their questions.</source>
        <translation>请降低学习率，并检查数据：回答可能与问题不对应。</translation>
    </message>
    <message>
        <source>Made by Tunesmith {version} on {date}.</source>
        <translation>由 Tunesmith {version} 于 {date} 生成。</translation>
    </message>
    <message>
        <source>More epochs or more rows may improve it further.</source>
        <translation>增加训练轮数或数据行可能会进一步改善。</translation>
    </message>
    <message>
        <source>No improvement: the held-out loss was {before} and is {after}.</source>
        <translation>没有改善：留出数据的损失原为 {before}，现为 {after}。</translation>
    </message>
    <message>
        <source>Nobody knows whether the model improved: no held-out rows were measured before and after.</source>
        <translation>无法得知模型是否改善：训练前后没有用留出的数据行测量。</translation>
    </message>
    <message>
        <source>Overfitting since step {step}: the held-out loss fell from {before} to {best} there and has risen to {after} since.</source>
        <translation>自第 {step} 步起过拟合：留出数据的损失到那时从 {before} 降到 {best}，此后升到 {after}。</translation>
    </message>
    <message>
        <source>Settings</source>
        <translation>设置</translation>
    </message>
    <message>
        <source>The model got worse: the held-out loss rose from {before} to {after}.</source>
        <translation>模型变差了：留出数据的损失从 {before} 升到 {after}。</translation>
    </message>
    <message>
        <source>Train for more steps or at a higher learning rate, and look at what is learned of the rows.</source>
        <translation>请增加训练步数或提高学习率，并查看数据行中哪些内容会被学习。</translation>
    </message>
    <message>
        <source>Train until step {step} only, or on more rows.</source>
        <translation>请只训练到第 {step} 步，或使用更多数据行。</translation>
    </message>
    <message>
        <source>Warnings</source>
        <translation>警告</translation>
    </message>
    <message>
        <source>What was trained</source>
        <translation>训练内容</translation>
    </message>
    <message>
        <source>Where it ran</source>
        <translation>运行环境</translation>
    </message>
    <message>
        <source>before training</source>
        <translation>训练前</translation>
    </message>
    <message>
        <source>device</source>
        <translation>设备</translation>
    </message>
    <message>
        <source>duration</source>
        <translation>用时</translation>
    </message>
    <message>
        <source>held-out loss</source>
        <translation>留出数据的损失</translation>
    </message>
    <message>
        <source>held-out rows</source>
        <translation>留出的数据行</translation>
    </message>
    <message>
        <source>no</source>
        <translation>否</translation>
    </message>
    <message>
        <source>number format</source>
        <translation>数值格式</translation>
    </message>
    <message>
        <source>perplexity</source>
        <translation>困惑度</translation>
    </message>
    <message>
        <source>report: {path}</source>
        <translation>报告：{path}</translation>
    </message>
    <message>
        <source>started</source>
        <translation>开始时间</translation>
    </message>
    <message>
        <source>trained parameters</source>
        <translation>训练的参数</translation>
    </message>
    <message>
        <source>training loss</source>
        <translation>训练损失</translation>
    </message>
    <message>
        <source>training rows</source>
        <translation>训练数据行</translation>
    </message>
    <message>
        <source>write a page about a run and what came of it</source>
        <translation>生成一份关于运行及其结果的网页</translation>
    </message>
    <message>
        <source>yes</source>
        <translation>是</translation>
    </message>
    <message>
        <source>Loading the model…</source>
        <translation>正在加载模型…</translation>
    </message>
    <message>
        <source>Trained model:</source>
        <translation>训练后的模型：</translation>
    </message>
    <message>
        <source>{tokens} tokens, the first after {first} s</source>
        <translation>{tokens} 个词元，{first} 秒后开始</translation>
    </message>
    <message>
        <source>{tokens} tokens, the first after {first} s, {speed} tokens/s</source>
        <translation>{tokens} 个词元，{first} 秒后开始，{speed} 词元/秒</translation>
    </message>
    <message>
        <source>Answering</source>
        <translation>正在回答</translation>
    </message>
    <message>
        <source>Preparing a prompt</source>
        <translation>正在准备提示词</translation>
    </message>
    <message>
        <source>The GPU has no room for this model now</source>
        <translation>显存目前放不下这个模型</translation>
    </message>
    <message>
        <source>A run or another program uses the GPU&apos;s memory.</source>
        <translation>有运行或其他程序正在占用显存。</translation>
    </message>
    <message>
        <source>Wait until the run has ended, or answer on the CPU, which is slower.</source>
        <translation>请等待运行结束，或改用较慢的 CPU 回答。</translation>
    </message>
    <message>
        <source>The conversation is too long</source>
        <translation>对话过长</translation>
    </message>
    <message>
        <source>The model can read only so many tokens at once.</source>
        <translation>模型一次能读取的词元数量有限。</translation>
    </message>
    <message>
        <source>Start a new conversation, or shorten the messages.</source>
        <translation>请开始新对话，或缩短消息。</translation>
    </message>
    <message>
        <source>A run needs the GPU, so the model was unloaded.</source>
        <translation>有运行需要使用 GPU，模型已卸载。</translation>
    </message>
    <message>
        <source>Close other programs that use the GPU, or answer on the CPU, which is slower.</source>
        <translation>请关闭其他占用 GPU 的程序，或改用较慢的 CPU 回答。</translation>
    </message>
    <message>
        <source>Nothing was asked for a while, so the model was unloaded.</source>
        <translation>一段时间没有提问，模型已卸载。</translation>
    </message>
    <message>
        <source>The conversation has {tokens:,} tokens, and this model reads at most {most:,}.</source>
        <translation>对话有 {tokens:,} 个词元，而该模型最多读取 {most:,} 个。</translation>
    </message>
    <message>
        <source>The model needs about {needed} of GPU memory. Beside the run {run}, {free} are left.</source>
        <translation>模型约需 {needed} 显存。运行 {run} 正在使用 GPU，仅剩 {free}。</translation>
    </message>
    <message>
        <source>The model needs about {needed} of GPU memory. {free} are free.</source>
        <translation>模型约需 {needed} 显存，目前空闲 {free}。</translation>
    </message>
    <message>
        <source>The process that makes prompts has ended.</source>
        <translation>准备提示词的进程已结束。</translation>
    </message>
    <message>
        <source>ask the trained model of a run</source>
        <translation>向某个运行训练出的模型提问</translation>
    </message>
    <message>
        <source>chat with the trained model of a run</source>
        <translation>与某个运行训练出的模型对话</translation>
    </message>
</context>
<context>
    <name>Dashboard</name>
    <message>
        <source>No sign of life since %1</source>
        <translation>自 %1 起没有动静</translation>
    </message>
    <message>
        <source>The run may be busy with a long step, or its computer may be asleep.</source>
        <translation>可能正在做很长的一步，或电脑睡眠了。</translation>
    </message>
    <message>
        <source>Show the log</source>
        <translation>显示日志</translation>
    </message>
    <message>
        <source>The run failed</source>
        <translation>运行失败</translation>
    </message>
    <message>
        <source>%1 at step %2</source>
        <translation>%1（第 %2 步）</translation>
    </message>
    <message>
        <source>Change and retry</source>
        <translation>修改后重试</translation>
    </message>
    <message>
        <source>Details</source>
        <translation>详细信息</translation>
    </message>
    <message>
        <source>Copy diagnostics</source>
        <translation>复制诊断信息</translation>
    </message>
    <message>
        <source>Retry with %1</source>
        <translation>改用%1重试</translation>
    </message>
    <message>
        <source>The run was interrupted at step %1</source>
        <translation>运行在第 %1 步中断了</translation>
    </message>
    <message>
        <source>There is no checkpoint to resume from. Duplicate the run to start again.</source>
        <translation>没有可以继续的检查点。请复制这个运行，重新开始。</translation>
    </message>
    <message>
        <source>Duplicate</source>
        <translation>复制运行</translation>
    </message>
    <message>
        <source>Nothing up to the last checkpoint is lost.</source>
        <translation>最近的检查点之前的内容都没有丢失。</translation>
    </message>
    <message>
        <source>Resume from %1</source>
        <translation>从第 %1 步继续</translation>
    </message>
    <message>
        <source>Keep as is</source>
        <translation>保持原样</translation>
    </message>
    <message>
        <source>Adapter: %1</source>
        <translation>适配器：%1</translation>
    </message>
    <message>
        <source>Open folder</source>
        <translation>打开文件夹</translation>
    </message>
    <message>
        <source>Show the answers</source>
        <translation>查看回答</translation>
    </message>
    <message>
        <source>Delete…</source>
        <translation>删除…</translation>
    </message>
    <message>
        <source>Model: %1</source>
        <translation>模型：%1</translation>
    </message>
    <message>
        <source>Copy path</source>
        <translation>复制路径</translation>
    </message>
    <message>
        <source>Finished: the adapter is ready</source>
        <translation>已完成：适配器可以使用了</translation>
    </message>
    <message>
        <source>Finished: the model is ready</source>
        <translation>已完成：模型已就绪</translation>
    </message>
    <message>
        <source>Finished, but most answers were cut before their end</source>
        <translation>已完成，但大多数回答在结尾前被截断</translation>
    </message>
    <message>
        <source>Finished, but the adapter is missing</source>
        <translation>已完成，但适配器缺失</translation>
    </message>
    <message>
        <source>Finished, but the model is missing</source>
        <translation>已完成，但缺少模型</translation>
    </message>
    <message>
        <source>Stopped at step %1</source>
        <translation>停止于第 %1 步</translation>
    </message>
    <message>
        <source>You can resume from step %1.</source>
        <translation>可以从第 %1 步继续。</translation>
    </message>
    <message>
        <source>Nothing was saved. Duplicate it to start again.</source>
        <translation>没有保存任何内容。请复制这个运行，重新开始。</translation>
    </message>
    <message>
        <source>Checkpoints</source>
        <translation>检查点</translation>
    </message>
    <message>
        <source>Settings used</source>
        <translation>所用设置</translation>
    </message>
    <message>
        <source>Files</source>
        <translation>文件</translation>
    </message>
    <message>
        <source>Resume</source>
        <translation>继续</translation>
    </message>
    <message>
        <source>Paused: the disk is full</source>
        <translation>已暂停：磁盘已满</translation>
    </message>
    <message>
        <source>Paused: the run can’t save to its disk</source>
        <translation>已暂停：无法保存到磁盘</translation>
    </message>
    <message>
        <source>Nothing is lost. The run continues by itself once there is space.</source>
        <translation>没有丢失任何内容。腾出空间后，训练会自动继续。</translation>
    </message>
    <message>
        <source>Nothing is lost. The run continues by itself once it can save again.</source>
        <translation>没有丢失任何内容。恢复可写后，训练会自动继续。</translation>
    </message>
    <message>
        <source>Nothing was trained yet. Resuming begins again.</source>
        <translation>尚未完成任何训练。继续时将从头开始。</translation>
    </message>
    <message>
        <source>Report</source>
        <translation>报告</translation>
    </message>
</context>
<context>
    <name>DashboardActions</name>
    <message>
        <source>The settings of the run are still loading.</source>
        <translation>运行的设置还在读取中。</translation>
    </message>
    <message>
        <source>The run has %1 data sources. This is the first.</source>
        <translation>该运行有 %1 个数据来源，这是第一个。</translation>
    </message>
    <message>
        <source>Save as HTML…</source>
        <translation>另存为 HTML…</translation>
    </message>
    <message>
        <source>Web pages (*.html)</source>
        <translation>网页 (*.html)</translation>
    </message>
    <message>
        <source>Save as PDF…</source>
        <translation>另存为 PDF…</translation>
    </message>
    <message>
        <source>PDF files (*.pdf)</source>
        <translation>PDF 文件 (*.pdf)</translation>
    </message>
    <message>
        <source>The report is saved.</source>
        <translation>报告已保存。</translation>
    </message>
    <message>
        <source>No browser opened. The report is saved.</source>
        <translation>未能打开浏览器。报告已保存。</translation>
    </message>
    <message>
        <source>Open folder</source>
        <translation>打开文件夹</translation>
    </message>
    <message>
        <source>Copy path</source>
        <translation>复制路径</translation>
    </message>
    <message>
        <source>Saved</source>
        <translation>已保存</translation>
    </message>
    <message>
        <source>Copied</source>
        <translation>已复制</translation>
    </message>
    <message>
        <source>The list of runs is still loading. Try again in a moment.</source>
        <translation>运行列表还在读取中，请稍后再试。</translation>
    </message>
</context>
<context>
    <name>DashboardCharts</name>
    <message>
        <source>Learning rate</source>
        <translation>学习率</translation>
    </message>
    <message>
        <source>The warm-up begins at 0, so the first step changes nothing.</source>
        <translation>预热从 0 开始，因此第一步不会改变模型。</translation>
    </message>
    <message>
        <source>Gradient norm</source>
        <translation>梯度范数</translation>
    </message>
    <message>
        <source>Memory</source>
        <translation>内存</translation>
    </message>
    <message>
        <source>GiB</source>
        <translation>GiB</translation>
    </message>
    <message>
        <source>Samples</source>
        <translation>生成示例</translation>
    </message>
    <message>
        <source>learning rate</source>
        <translation>学习率</translation>
    </message>
    <message>
        <source>gradient norm</source>
        <translation>梯度范数</translation>
    </message>
    <message>
        <source>VRAM</source>
        <translation>显存</translation>
    </message>
    <message>
        <source>process</source>
        <translation>进程</translation>
    </message>
</context>
<context>
    <name>DashboardHeader</name>
    <message>
        <source>All runs</source>
        <translation>全部运行</translation>
    </message>
    <message>
        <source>Resume</source>
        <translation>继续</translation>
    </message>
    <message>
        <source>Stop…</source>
        <translation>停止…</translation>
    </message>
    <message>
        <source>More actions</source>
        <translation>更多操作</translation>
    </message>
    <message>
        <source>Loss</source>
        <translation>损失</translation>
    </message>
    <message>
        <source>Epoch</source>
        <translation>轮次</translation>
    </message>
    <message>
        <source>Throughput</source>
        <translation>吞吐量</translation>
    </message>
    <message>
        <source>Time left</source>
        <translation>剩余时间</translation>
    </message>
    <message>
        <source>Evaluation loss</source>
        <translation>评估损失</translation>
    </message>
    <message>
        <source>Held-out accuracy</source>
        <translation>留出准确率</translation>
    </message>
    <message>
        <source>Export…</source>
        <translation>导出…</translation>
    </message>
    <message>
        <source>tokens/s</source>
        <translation>词元/秒</translation>
    </message>
    <message>
        <source>Reward</source>
        <translation>奖励</translation>
    </message>
    <message>
        <source>Held-out reward</source>
        <translation>留出奖励</translation>
    </message>
    <message>
        <source>from %1</source>
        <translation>起始 %1</translation>
    </message>
    <message>
        <source>before training</source>
        <translation>训练前</translation>
    </message>
    <message>
        <source>ends %1</source>
        <translation>%1 结束</translation>
    </message>
    <message>
        <source>Duration</source>
        <translation>时长</translation>
    </message>
    <message>
        <source>Save now</source>
        <translation>立即保存</translation>
    </message>
    <message>
        <source>Evaluate now</source>
        <translation>立即评估</translation>
    </message>
    <message>
        <source>Ask the model…</source>
        <translation>向模型提问…</translation>
    </message>
    <message>
        <source>Copy as command</source>
        <translation>复制为命令</translation>
    </message>
    <message>
        <source>Duplicate</source>
        <translation>复制运行</translation>
    </message>
    <message>
        <source>Continue from this</source>
        <translation>由此继续训练</translation>
    </message>
    <message>
        <source>Open folder</source>
        <translation>打开文件夹</translation>
    </message>
    <message>
        <source>Copy diagnostics</source>
        <translation>复制诊断信息</translation>
    </message>
    <message>
        <source>Delete…</source>
        <translation>删除…</translation>
    </message>
    <message>
        <source>Try it</source>
        <translation>试用</translation>
    </message>
</context>
<context>
    <name>DashboardPage</name>
    <message>
        <source>Parts of the run</source>
        <translation>运行的各部分</translation>
    </message>
    <message>
        <source>Loading the charts…</source>
        <translation>正在加载图表…</translation>
    </message>
    <message>
        <source>Charts</source>
        <translation>图表</translation>
    </message>
    <message>
        <source>Answers</source>
        <translation>回答</translation>
    </message>
    <message>
        <source>Evaluation</source>
        <translation>评估</translation>
    </message>
    <message>
        <source>Log</source>
        <translation>日志</translation>
    </message>
    <message>
        <source>Samples</source>
        <translation>生成示例</translation>
    </message>
    <message>
        <source>Checkpoints</source>
        <translation>检查点</translation>
    </message>
    <message>
        <source>Settings used</source>
        <translation>所用设置</translation>
    </message>
    <message>
        <source>Files</source>
        <translation>文件</translation>
    </message>
    <message>
        <source>Without it this run can’t be resumed, asked, evaluated or exported in most formats.</source>
        <translation>没有它，此运行无法继续训练、提问、评估，也无法以大多数格式导出。</translation>
    </message>
    <message>
        <source>The base model %1 is in the trash</source>
        <translation>基础模型 %1 在回收站中</translation>
    </message>
    <message>
        <source>Restore it</source>
        <translation>恢复</translation>
    </message>
    <message>
        <source>The model answered: %1</source>
        <translation>模型回答：%1</translation>
    </message>
    <message>
        <source>%1: %2</source>
        <translation>%1：%2</translation>
    </message>
</context>
<context>
    <name>DataHome</name>
    <message>
        <source>Look at your rows, see what a model learns from them, and repair what is wrong.</source>
        <translation>查看数据的每一行，了解模型会从中学到什么，并修复其中的问题。</translation>
    </message>
    <message>
        <source>Data</source>
        <translation>数据</translation>
    </message>
    <message>
        <source>Recent files</source>
        <translation>最近使用的文件</translation>
    </message>
    <message>
        <source>JSONL, JSON, CSV, Excel, OpenDocument, Parquet, Arrow, PDF, Word, HTML, Markdown, text, also as gz, zst or ZIP</source>
        <translation>JSONL、JSON、CSV、Excel、OpenDocument、Parquet、Arrow、PDF、Word、HTML、Markdown、纯文本，以及它们的 gz、zst、ZIP 压缩文件</translation>
    </message>
    <message>
        <source>Drop a file here</source>
        <translation>把文件拖到这里</translation>
    </message>
    <message>
        <source>The file itself is never changed.</source>
        <translation>原文件始终不会被修改。</translation>
    </message>
    <message>
        <source>Choose a file…</source>
        <translation>选择文件…</translation>
    </message>
    <message>
        <source>Samples</source>
        <translation>示例数据</translation>
    </message>
    <message>
        <source>160 short chats about an invented herb garden. A small model learns them in minutes.</source>
        <translation>160 段关于一座虚构香草园的简短对话，小模型几分钟就能学会。</translation>
    </message>
    <message>
        <source>English sample</source>
        <translation>英文示例</translation>
    </message>
    <message>
        <source>Chinese sample</source>
        <translation>中文示例</translation>
    </message>
    <message>
        <source>in %1</source>
        <translation>位于 %1</translation>
    </message>
    <message>
        <source>Choose a data file</source>
        <translation>选择数据文件</translation>
    </message>
</context>
<context>
    <name>DataPage</name>
    <message>
        <source>Drop to look at the file</source>
        <translation>松开即可查看文件</translation>
    </message>
    <message>
        <source>%1 is in the library now.</source>
        <translation>%1 已加入数据集列表。</translation>
    </message>
</context>
<context>
    <name>DataPicker</name>
    <message>
        <source>%1 → %2</source>
        <translation>%1 → %2</translation>
    </message>
    <message>
        <source>System prompt</source>
        <translation>系统提示词</translation>
    </message>
    <message>
        <source>Instruction</source>
        <translation>指令</translation>
    </message>
    <message>
        <source>Input</source>
        <translation>输入</translation>
    </message>
    <message>
        <source>Prompt</source>
        <translation>提示词</translation>
    </message>
    <message>
        <source>Chat</source>
        <translation>对话</translation>
    </message>
    <message>
        <source>Chat (ShareGPT)</source>
        <translation>对话（ShareGPT）</translation>
    </message>
    <message>
        <source>Multiple choice</source>
        <translation>选择题</translation>
    </message>
    <message>
        <source>Instruction and response (Alpaca)</source>
        <translation>指令与回答（Alpaca）</translation>
    </message>
    <message>
        <source>Prompt and response</source>
        <translation>提示词与回答</translation>
    </message>
    <message>
        <source>Prompt and response as plain text</source>
        <translation>提示词与回答（纯文本）</translation>
    </message>
    <message>
        <source>Plain text</source>
        <translation>纯文本</translation>
    </message>
    <message>
        <source>Preference pairs</source>
        <translation>偏好数据对</translation>
    </message>
    <message>
        <source>Tokens</source>
        <translation>词元</translation>
    </message>
    <message>
        <source>Text with label</source>
        <translation>带标签的文本</translation>
    </message>
    <message>
        <source>Solution steps with labels</source>
        <translation>带标签的解题步骤</translation>
    </message>
    <message>
        <source>Prompts without answers</source>
        <translation>没有回答的提示词</translation>
    </message>
    <message>
        <source>Format not recognized</source>
        <translation>无法识别格式</translation>
    </message>
    <message>
        <source>“%1” says which of “%2” and “%3” is better</source>
        <translation>“%1”说明“%2”和“%3”中哪个更好</translation>
    </message>
    <message>
        <source>, </source>
        <translation>、</translation>
    </message>
    <message>
        <source>Not used: %1</source>
        <translation>未使用：%1</translation>
    </message>
    <message>
        <source>Option %1</source>
        <translation>选项 %1</translation>
    </message>
    <message>
        <source>Messages</source>
        <translation>消息</translation>
    </message>
    <message>
        <source>Context</source>
        <translation>上下文</translation>
    </message>
    <message>
        <source>Response</source>
        <translation>回答</translation>
    </message>
    <message>
        <source>Question</source>
        <translation>问题</translation>
    </message>
    <message>
        <source>List of options</source>
        <translation>选项列表</translation>
    </message>
    <message>
        <source>Right option</source>
        <translation>正确选项</translation>
    </message>
    <message>
        <source>Text</source>
        <translation>文本</translation>
    </message>
    <message>
        <source>Chosen response</source>
        <translation>选中的回答</translation>
    </message>
    <message>
        <source>Rejected response</source>
        <translation>被拒的回答</translation>
    </message>
    <message>
        <source>Which one is better</source>
        <translation>哪个更好</translation>
    </message>
    <message>
        <source>Good or bad</source>
        <translation>好或坏</translation>
    </message>
    <message>
        <source>Label</source>
        <translation>标签</translation>
    </message>
    <message>
        <source>Steps</source>
        <translation>步骤</translation>
    </message>
    <message>
        <source>Right or wrong</source>
        <translation>对或错</translation>
    </message>
    <message>
        <source>Tools</source>
        <translation>工具</translation>
    </message>
    <message>
        <source>Earlier turns</source>
        <translation>之前的对话</translation>
    </message>
    <message>
        <source>Token IDs</source>
        <translation>词元编号</translation>
    </message>
    <message>
        <source>Learned token IDs</source>
        <translation>学习的词元编号</translation>
    </message>
    <message>
        <source>Attention mask</source>
        <translation>注意力掩码</translation>
    </message>
    <message>
        <source>Data</source>
        <translation>数据</translation>
    </message>
    <message>
        <source>Choose a file, or drop one</source>
        <translation>选择或拖入文件</translation>
    </message>
    <message>
        <source>Browse for a data file</source>
        <translation>浏览数据文件</translation>
    </message>
    <message>
        <source>Add another data file</source>
        <translation>再添加一个数据文件</translation>
    </message>
    <message>
        <source>Each row: a prompt with a better and a worse answer.</source>
        <translation>每行包含一个提示词，以及一个较好和一个较差的回答。</translation>
    </message>
    <message>
        <source>Each row: a prompt, an answer, and whether it is good or bad. Pairs work too.</source>
        <translation>每行包含一个提示词、一个回答，以及它是好是坏。也可以使用偏好对。</translation>
    </message>
    <message>
        <source>One example per row: a chat, a prompt and its response, or text.</source>
        <translation>每行一个样本：对话、提示词及其回答，或文本。</translation>
    </message>
    <message>
        <source>JSONL, CSV, Excel, Parquet, PDF, Word, text and more.</source>
        <translation>支持 JSONL、CSV、Excel、Parquet、PDF、Word、文本等。</translation>
    </message>
    <message>
        <source>JSONL, CSV, Excel, Parquet and more.</source>
        <translation>支持 JSONL、CSV、Excel、Parquet 等。</translation>
    </message>
    <message>
        <source>Map columns…</source>
        <translation>指定各列…</translation>
    </message>
    <message>
        <source>Preview…</source>
        <translation>预览…</translation>
    </message>
    <message>
        <source>Use the sample</source>
        <translation>使用示例数据</translation>
    </message>
    <message>
        <source>Each row: a text and its label.</source>
        <translation>每行：一段文本及其标签。</translation>
    </message>
    <message>
        <source>Each row: a problem, the steps of a solution, and a label for each step.</source>
        <translation>每行：一道题、解题步骤，以及每一步的标签。</translation>
    </message>
    <message>
        <source>Each row: a prompt, and the right answer where there is one.</source>
        <translation>每行：一个提示词，如有正确答案也一并提供。</translation>
    </message>
    <message>
        <source>A long text is cut at headings and paragraphs, and nothing is left out.</source>
        <translation>长文本会在标题和段落处切开，内容一点也不会丢。</translation>
    </message>
    <message>
        <source>Each row has a better and a worse answer. Only the better one is learned.</source>
        <translation>每行都有一个较好和一个较差的回答，现在只学习较好的回答。</translation>
    </message>
    <message>
        <source>Change columns…</source>
        <translation>更改列…</translation>
    </message>
    <message>
        <source>This model has a chat template. Trained without it, it may answer wrongly in a chat.</source>
        <translation>该模型有对话模板。若不使用它训练，模型在对话中可能答错。</translation>
    </message>
    <message>
        <source>Trained as plain text</source>
        <translation>作为纯文本训练</translation>
    </message>
    <message>
        <source>Each row needs: %1. The columns of this file are: %2.</source>
        <translation>每行需要：%1。此文件的列有：%2。</translation>
    </message>
    <message>
        <source>Too few columns</source>
        <translation>列太少</translation>
    </message>
    <message>
        <source>No labels in this data that tell good answers from bad ones</source>
        <translation>数据中没有能区分好坏回答的标签</translation>
    </message>
    <message>
        <source>All labels are the same</source>
        <translation>所有标签都相同</translation>
    </message>
    <message>
        <source>Say which columns hold the better and the worse answer, or teach by example.</source>
        <translation>请指定哪些列是较好和较差的回答，或者改用示例学习。</translation>
    </message>
    <message>
        <source>No preference pairs in this data</source>
        <translation>数据中没有偏好对</translation>
    </message>
    <message>
        <source>Say which columns hold the prompt and the right answer, or teach by example.</source>
        <translation>指定哪些列是提示词和正确答案，或改为用示例学习。</translation>
    </message>
    <message>
        <source>No prompts in this data</source>
        <translation>这份数据中没有提示词</translation>
    </message>
    <message>
        <source>Skip such rows, or repair them on the Data page.</source>
        <translation>请跳过这些行，或在“数据”页修复它们。</translation>
    </message>
    <message>
        <source>Show the problems</source>
        <translation>显示问题</translation>
    </message>
    <message>
        <source>Repair the rows on the Data page, or choose another file.</source>
        <translation>在“数据”页修复这些行，或选择其他文件。</translation>
    </message>
    <message>
        <source>Reading the first rows…</source>
        <translation>正在读取前几行…</translation>
    </message>
    <message>
        <source>Data (*.jsonl *.json *.csv *.tsv *.xlsx *.xlsm *.xlsb *.xls *.ods *.parquet *.arrow *.txt *.md *.pdf *.docx *.html *.gz *.zst *.zip);;All files (*)</source>
        <translation>数据 (*.jsonl *.json *.csv *.tsv *.xlsx *.xlsm *.xlsb *.xls *.ods *.parquet *.arrow *.txt *.md *.pdf *.docx *.html *.gz *.zst *.zip);;所有文件 (*)</translation>
    </message>
    <message>
        <source>%1 of 1 row</source>
        <translation>共 1 行，使用 %1 行</translation>
    </message>
    <message>
        <source>%1 of %2 rows</source>
        <translation>共 %2 行，使用 %1 行</translation>
    </message>
    <message>
        <source>%1 skipped</source>
        <translation>跳过 %1 行</translation>
    </message>
    <message>
        <source>%1 rows</source>
        <translation>%1 行</translation>
    </message>
    <message>
        <source>about %1 rows</source>
        <translation>约 %1 行</translation>
    </message>
    <message>
        <source>%1 row</source>
        <translation>%1 行</translation>
    </message>
    <message>
        <source>bad rows skipped: at least %1</source>
        <translation>至少跳过 %1 行无效数据</translation>
    </message>
    <message>
        <source>trained as a chat</source>
        <translation>作为对话训练</translation>
    </message>
    <message>
        <source>Choose a data file</source>
        <translation>选择数据文件</translation>
    </message>
</context>
<context>
    <name>DataPreviewDialog</name>
    <message>
        <source>Preview of the data</source>
        <translation>数据预览</translation>
    </message>
    <message>
        <source>As the model will see it</source>
        <translation>模型将看到的样子</translation>
    </message>
    <message>
        <source>The model learns the underlined text. The rest is context.</source>
        <translation>模型学习带下划线的文字，其余只作为上下文。</translation>
    </message>
    <message>
        <source>The model learns to prefer the better underlined text. The rest is context.</source>
        <translation>模型学习偏好带下划线的较好回答，其余只作为上下文。</translation>
    </message>
    <message>
        <source>The model learns to write more like good answers and less like bad ones. The underlined text counts. The rest is context.</source>
        <translation>模型学习多写出像好回答那样的内容，少写出像差回答那样的内容。带下划线的文本计入学习，其余是上下文。</translation>
    </message>
    <message>
        <source>The model reads the underlined text and learns its label.</source>
        <translation>模型读取带下划线的文本，并学习它的标签。</translation>
    </message>
    <message>
        <source>The model reads the solution and learns at the end of each step whether it is right.</source>
        <translation>模型读取解答，并在每一步的末尾学习这一步是否正确。</translation>
    </message>
    <message>
        <source>The model answers each prompt itself. The underlined text is what its answers should be.</source>
        <translation>模型自己回答每条提示词。下划线文字是它的回答应有的内容。</translation>
    </message>
    <message>
        <source>Reading the data with the model&apos;s own tokenizer…</source>
        <translation>正在用模型自己的分词器读取数据…</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>关闭</translation>
    </message>
    <message>
        <source>Previous example</source>
        <translation>上一个样本</translation>
    </message>
    <message>
        <source>Next example</source>
        <translation>下一个样本</translation>
    </message>
    <message>
        <source>Example as the model will see it</source>
        <translation>模型将看到的样本</translation>
    </message>
    <message numerus="yes">
        <source>%Ln example(s)</source>
        <translation>
            <numerusform>%Ln 个样本</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>the first %Ln example(s)</source>
        <translation>
            <numerusform>前 %Ln 个样本</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>longest %Ln token(s)</source>
        <translation>
            <numerusform>最长 %Ln 个词元</numerusform>
        </translation>
    </message>
    <message>
        <source>%1 cut at the context length</source>
        <translation>%1 个在上下文长度处截断</translation>
    </message>
    <message>
        <source>%1 skipped</source>
        <translation>跳过 %1 个</translation>
    </message>
    <message>
        <source>%1 without trained tokens</source>
        <translation>%1 个没有可学习的词元</translation>
    </message>
    <message>
        <source>trained as a chat</source>
        <translation>作为对话训练</translation>
    </message>
    <message>
        <source>and %1 more</source>
        <translation>以及另外 %1 个</translation>
    </message>
    <message>
        <source>Example %1 of %2  ·  %3  ·  %4 tokens, %5 trained</source>
        <translation>样本 %1 / %2  ·  %3  ·  %4 个词元，学习 %5 个</translation>
    </message>
    <message>
        <source>Example %1 of the first %2  ·  %3  ·  %4 tokens, %5 trained</source>
        <translation>前 %2 个样本中的第 %1 个  ·  %3  ·  %4 个词元，学习 %5 个</translation>
    </message>
    <message>
        <source>Example %1 of %2  ·  %3  ·  %4 tokens</source>
        <translation>样本 %1 / %2  ·  %3  ·  %4 个词元</translation>
    </message>
    <message>
        <source>Example %1 of the first %2  ·  %3  ·  %4 tokens</source>
        <translation>前 %2 个样本中的第 %1 个  ·  %3  ·  %4 个词元</translation>
    </message>
    <message>
        <source>better %1 tokens, %2 trained, worse %3 tokens, %4 trained</source>
        <translation>较好的 %1 个词元，训练 %2 个，较差的 %3 个词元，训练 %4 个</translation>
    </message>
    <message>
        <source>Label: %1</source>
        <translation>标签：%1</translation>
    </message>
    <message>
        <source>right</source>
        <translation>正确</translation>
    </message>
    <message>
        <source>wrong</source>
        <translation>错误</translation>
    </message>
</context>
<context>
    <name>DataWords</name>
    <message>
        <source>None of the %1 rows can be used as it is</source>
        <translation>%1 行数据全都无法直接使用</translation>
    </message>
    <message>
        <source>1 row can&apos;t be used as it is</source>
        <translation>有 1 行不能直接使用</translation>
    </message>
    <message>
        <source>%1 rows can&apos;t be used as they are</source>
        <translation>有 %1 行不能直接使用</translation>
    </message>
    <message>
        <source>Some rows can&apos;t be used as they are</source>
        <translation>有些行不能直接使用</translation>
    </message>
    <message>
        <source>good and bad answers, told apart by “%1”</source>
        <translation>含好坏两类回答，由“%1”区分</translation>
    </message>
    <message>
        <source>You chose these columns.</source>
        <translation>这些列由你指定。</translation>
    </message>
    <message>
        <source>A text file: paragraphs are joined into examples of up to %1 characters. A heading begins a new one.</source>
        <translation>文本文件：段落会合并为样本，每个样本最多 %1 个字符；遇到标题则开始新的样本。</translation>
    </message>
    <message>
        <source>Recognized when the rows are read.</source>
        <translation>读取数据行时识别格式。</translation>
    </message>
    <message>
        <source>“%1”</source>
        <translation>“%1”</translation>
    </message>
    <message>
        <source>Recognized because %1 holds chats.</source>
        <translation>因为 %1 包含对话而识别。</translation>
    </message>
    <message>
        <source>Recognized by the names of the columns: %1.</source>
        <translation>识别依据：列名 %1。</translation>
    </message>
    <message>
        <source>Recognized because %1 holds text and no other column a response.</source>
        <translation>识别依据：%1 列是文本，且没有其他列像是回答。</translation>
    </message>
</context>
<context>
    <name>DeleteRunDialog</name>
    <message>
        <source>Delete runs?</source>
        <translation>删除这些运行？</translation>
    </message>
    <message numerus="yes">
        <source>Delete %n run(s)?</source>
        <translation>
            <numerusform>删除 %n 个运行？</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>and %n more</source>
        <translation>
            <numerusform>以及另外 %n 个</numerusform>
        </translation>
    </message>
    <message>
        <source>Move to the trash. Runs can be restored from there</source>
        <translation>移到回收站，之后可以恢复</translation>
    </message>
    <message>
        <source>Delete the files now. This can&apos;t be undone</source>
        <translation>立即删除文件；无法撤销</translation>
    </message>
    <message>
        <source>Keep</source>
        <translation>保留</translation>
    </message>
    <message>
        <source>Delete</source>
        <translation>删除</translation>
    </message>
    <message>
        <source>%1, started %2</source>
        <translation>%1（%2 开始）</translation>
    </message>
    <message numerus="yes">
        <source>%n run(s) are links. Only links are deleted, not the runs they point to.</source>
        <translation>
            <numerusform>%n 个运行是链接。只删除链接，不删除它指向的运行。</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%n checkpoint(s)</source>
        <translation>
            <numerusform>%n 个检查点</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%n trained adapter(s)</source>
        <translation>
            <numerusform>%n 个训练好的适配器</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%n trained model(s)</source>
        <translation>
            <numerusform>%n 个训练好的模型</numerusform>
        </translation>
    </message>
    <message>
        <source>settings, curves and logs</source>
        <translation>设置、曲线和日志</translation>
    </message>
    <message>
        <source>%1 in all</source>
        <translation>共 %1</translation>
    </message>
    <message>
        <source>Deleted: %1 (%2)</source>
        <translation>将删除：%1（%2）</translation>
    </message>
    <message>
        <source>Kept: base models, training data and copies you made</source>
        <translation>会保留：基础模型、训练数据和你自己的副本</translation>
    </message>
</context>
<context>
    <name>DeviceCard</name>
    <message>
        <source>GPU</source>
        <translation>GPU</translation>
    </message>
    <message>
        <source>VRAM</source>
        <translation>显存</translation>
    </message>
    <message>
        <source>Memory of this computer</source>
        <translation>电脑内存</translation>
    </message>
    <message>
        <source>Utilization</source>
        <translation>利用率</translation>
    </message>
    <message>
        <source>Temperature</source>
        <translation>温度</translation>
    </message>
    <message>
        <source>Power</source>
        <translation>功率</translation>
    </message>
    <message>
        <source>Processor</source>
        <translation>处理器</translation>
    </message>
    <message>
        <source>Memory of the run</source>
        <translation>运行占用的内存</translation>
    </message>
    <message>
        <source>Memory of the run, highest</source>
        <translation>运行占用的内存（峰值）</translation>
    </message>
    <message>
        <source>VRAM, highest</source>
        <translation>显存（峰值）</translation>
    </message>
    <message>
        <source>Average utilization</source>
        <translation>平均利用率</translation>
    </message>
    <message>
        <source>Highest temperature</source>
        <translation>最高温度</translation>
    </message>
    <message>
        <source>Average power</source>
        <translation>平均功率</translation>
    </message>
    <message>
        <source>cores busy</source>
        <translation>个核心满载</translation>
    </message>
    <message>
        <source>of all cores</source>
        <translation>（全部核心）</translation>
    </message>
</context>
<context>
    <name>Diagnosis</name>
    <message>
        <source>Likely</source>
        <translation>很可能</translation>
    </message>
    <message>
        <source>Certain</source>
        <translation>确定</translation>
    </message>
    <message>
        <source>Possible</source>
        <translation>可能</translation>
    </message>
    <message>
        <source>The answer appears here.</source>
        <translation>答案会显示在这里。</translation>
    </message>
    <message>
        <source>Cause not recognized.</source>
        <translation>未能识别原因。</translation>
    </message>
    <message>
        <source>Code: %1</source>
        <translation>代码：%1</translation>
    </message>
</context>
<context>
    <name>DiagnosticsDialog</name>
    <message>
        <source>Diagnostics</source>
        <translation>诊断信息</translation>
    </message>
    <message>
        <source>Names, addresses and tokens are removed. Nothing is sent. You decide where to paste it.</source>
        <translation>姓名、地址和令牌均已去除。不会发送任何内容，粘贴到哪里由你决定。</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>关闭</translation>
    </message>
    <message>
        <source>Copy</source>
        <translation>复制</translation>
    </message>
</context>
<context>
    <name>DiskCard</name>
    <message>
        <source>Open folder</source>
        <translation>打开文件夹</translation>
    </message>
    <message>
        <source>Clear</source>
        <translation>清空</translation>
    </message>
    <message>
        <source>Clear compiled kernels</source>
        <translation>清空已编译的内核</translation>
    </message>
    <message>
        <source>Show runs</source>
        <translation>显示运行</translation>
    </message>
</context>
<context>
    <name>DoubtsFirst</name>
    <message>
        <source>Your files stay as they are.</source>
        <translation>你的文件保持不变。</translation>
    </message>
    <message>
        <source>Train without a part of the data?</source>
        <translation>要在缺少部分数据的情况下训练吗？</translation>
    </message>
    <message>
        <source>Start run</source>
        <translation>开始运行</translation>
    </message>
</context>
<context>
    <name>DownloadFirst</name>
    <message>
        <source>Stopping…</source>
        <translation>正在停止…</translation>
    </message>
    <message>
        <source>Waiting: %1</source>
        <translation>正在等待：%1</translation>
    </message>
    <message>
        <source>Asking the hub…</source>
        <translation>正在询问模型站…</translation>
    </message>
</context>
<context>
    <name>DownloadRow</name>
    <message>
        <source>Pause</source>
        <translation>暂停</translation>
    </message>
    <message>
        <source>Pause %1</source>
        <translation>暂停 %1</translation>
    </message>
    <message>
        <source>Continue</source>
        <translation>继续</translation>
    </message>
    <message>
        <source>Continue %1</source>
        <translation>继续 %1</translation>
    </message>
    <message>
        <source>Get access…</source>
        <translation>获取访问权限…</translation>
    </message>
    <message>
        <source>Get access to %1</source>
        <translation>获取 %1 的访问权限</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Cancel %1</source>
        <translation>取消 %1</translation>
    </message>
    <message>
        <source>Progress of %1</source>
        <translation>%1 的进度</translation>
    </message>
    <message>
        <source>Paused at %1</source>
        <translation>已暂停于 %1</translation>
    </message>
    <message>
        <source>Paused</source>
        <translation>已暂停</translation>
    </message>
    <message>
        <source>Stopping…</source>
        <translation>正在停止…</translation>
    </message>
    <message>
        <source>Another window or command is downloading it.</source>
        <translation>另一个窗口或命令正在下载它。</translation>
    </message>
    <message>
        <source>Waiting: %1</source>
        <translation>正在等待：%1</translation>
    </message>
    <message>
        <source>Asking the hub…</source>
        <translation>正在询问模型站…</translation>
    </message>
</context>
<context>
    <name>DropOverlay</name>
    <message>
        <source>Drop to start a new run with it</source>
        <translation>松开即可用它新建运行</translation>
    </message>
    <message>
        <source>A data file, a model folder or a run spec</source>
        <translation>数据文件、模型文件夹或运行配置</translation>
    </message>
</context>
<context>
    <name>Duration</name>
    <message>
        <source>%1 s</source>
        <translation>%1 秒</translation>
    </message>
    <message>
        <source>%1 min</source>
        <translation>%1 分钟</translation>
    </message>
    <message>
        <source>%1 h %2 min</source>
        <translation>%1 小时 %2 分</translation>
    </message>
</context>
<context>
    <name>Environment</name>
    <message>
        <source>Training environment</source>
        <translation>训练环境</translation>
    </message>
    <message>
        <source>Checks</source>
        <translation>检查</translation>
    </message>
    <message>
        <source>%1 failed</source>
        <translation>%1 项失败</translation>
    </message>
    <message>
        <source>%1 of %2 checks done</source>
        <translation>已完成 %1/%2 项检查</translation>
    </message>
    <message>
        <source>%1 with warnings</source>
        <translation>%1 项有警告</translation>
    </message>
    <message>
        <source>%1 unknown</source>
        <translation>%1 项未知</translation>
    </message>
    <message>
        <source>%1 passed</source>
        <translation>%1 项通过</translation>
    </message>
    <message>
        <source>GPU memory</source>
        <translation>显存</translation>
    </message>
    <message>
        <source>Disk</source>
        <translation>磁盘</translation>
    </message>
    <message>
        <source>Environments, including the previous one</source>
        <translation>各环境，包括上一个</translation>
    </message>
    <message>
        <source>Compiled kernels, rebuilt when needed</source>
        <translation>已编译的内核，需要时重新生成</translation>
    </message>
    <message>
        <source>Download cache</source>
        <translation>下载缓存</translation>
    </message>
    <message>
        <source>Runs, with checkpoints and adapters</source>
        <translation>运行及其检查点和适配器</translation>
    </message>
    <message>
        <source>Base models</source>
        <translation>基础模型</translation>
    </message>
    <message>
        <source>Not checked yet</source>
        <translation>尚未检查</translation>
    </message>
    <message>
        <source>Not installed</source>
        <translation>未安装</translation>
    </message>
    <message>
        <source>Checking</source>
        <translation>正在检查</translation>
    </message>
    <message>
        <source>Working</source>
        <translation>进行中</translation>
    </message>
    <message>
        <source>Healthy</source>
        <translation>正常</translation>
    </message>
    <message>
        <source>Works, with warnings</source>
        <translation>可用，有警告</translation>
    </message>
    <message>
        <source>Needs an update</source>
        <translation>需要更新</translation>
    </message>
    <message>
        <source>The window needs repair</source>
        <translation>程序窗口需要修复</translation>
    </message>
    <message>
        <source>Works, but this computer has a problem</source>
        <translation>可以使用，但这台电脑有问题</translation>
    </message>
    <message>
        <source>Needs repair</source>
        <translation>需要修复</translation>
    </message>
    <message>
        <source>Waiting</source>
        <translation>等待中</translation>
    </message>
    <message>
        <source>OK</source>
        <translation>正常</translation>
    </message>
    <message>
        <source>Warning</source>
        <translation>警告</translation>
    </message>
    <message>
        <source>Failed</source>
        <translation>失败</translation>
    </message>
    <message>
        <source>Unknown</source>
        <translation>未知</translation>
    </message>
    <message>
        <source>%1 free</source>
        <translation>剩余 %1</translation>
    </message>
    <message>
        <source>compute %1</source>
        <translation>计算能力 %1</translation>
    </message>
    <message>
        <source>%1 of VRAM is enough for models up to about 1B parameters.</source>
        <translation>%1 显存可训练约 10 亿参数以下的模型。</translation>
    </message>
    <message>
        <source>process %1</source>
        <translation>进程 %1</translation>
    </message>
    <message>
        <source>Another program uses %1 (%2).</source>
        <translation>另一个程序占用了 %1（%2）。</translation>
    </message>
    <message>
        <source>the processor</source>
        <translation>处理器</translation>
    </message>
    <message>
        <source>Tested on %1 on %2</source>
        <translation>已于 %1 在 %2 上测试</translation>
    </message>
    <message>
        <source>Built on %1, not tested on this computer yet</source>
        <translation>构建于 %1，尚未在此电脑上测试</translation>
    </message>
    <message>
        <source>Not tested on this computer yet</source>
        <translation>尚未在此电脑上测试</translation>
    </message>
</context>
<context>
    <name>EnvironmentCard</name>
    <message>
        <source>Install…</source>
        <translation>安装…</translation>
    </message>
    <message>
        <source>Check again</source>
        <translation>重新检查</translation>
    </message>
    <message>
        <source>Repair…</source>
        <translation>修复…</translation>
    </message>
    <message>
        <source>Roll back…</source>
        <translation>回退…</translation>
    </message>
    <message>
        <source>Full check</source>
        <translation>完整检查</translation>
    </message>
    <message>
        <source>Change version…</source>
        <translation>更换版本…</translation>
    </message>
    <message>
        <source>Reading what is installed…</source>
        <translation>正在读取已安装的内容…</translation>
    </message>
</context>
<context>
    <name>EnvironmentPage</name>
    <message>
        <source>Environment</source>
        <translation>环境</translation>
    </message>
    <message>
        <source>Offline</source>
        <translation>离线</translation>
    </message>
    <message>
        <source>The network can&apos;t be reached. Everything on this computer works.</source>
        <translation>无法连接网络。这台电脑上的一切仍可使用。</translation>
    </message>
    <message>
        <source>When something goes wrong</source>
        <translation>出了问题时</translation>
    </message>
    <message>
        <source>Explain a log…</source>
        <translation>解释日志…</translation>
    </message>
    <message>
        <source>Copy diagnostics</source>
        <translation>复制诊断信息</translation>
    </message>
    <message>
        <source>Save report…</source>
        <translation>保存报告…</translation>
    </message>
    <message>
        <source>Try again</source>
        <translation>重试</translation>
    </message>
    <message>
        <source>Show the log</source>
        <translation>显示日志</translation>
    </message>
    <message>
        <source>Compiled kernels</source>
        <translation>已编译的内核</translation>
    </message>
    <message>
        <source>Repair the environment?</source>
        <translation>要修复环境吗？</translation>
    </message>
    <message>
        <source>Repair</source>
        <translation>修复</translation>
    </message>
    <message>
        <source>Roll back</source>
        <translation>回退</translation>
    </message>
    <message>
        <source>The software that trains models on this computer, and its state.</source>
        <translation>这台电脑上用于训练的软件及其状态。</translation>
    </message>
    <message>
        <source>Paste or drop the output of any training tool to see the cause and the fix.</source>
        <translation>粘贴或拖入任何训练工具的输出，即可看到原因和解决办法。</translation>
    </message>
    <message>
        <source>Open setup…</source>
        <translation>打开设置向导…</translation>
    </message>
    <message>
        <source>Checks everything and replaces what is damaged.</source>
        <translation>检查所有内容，并替换损坏的部分。</translation>
    </message>
    <message>
        <source>Repairs run one at a time, and one that does not help is undone. Runs and models are not touched.</source>
        <translation>逐项修复，没有效果的修复会撤销。不会改动运行和模型。</translation>
    </message>
    <message>
        <source>Downloads up to %1. %2</source>
        <translation>最多下载 %1。%2</translation>
    </message>
    <message>
        <source>Tunesmith will use the environment %1 again.</source>
        <translation>将重新使用环境 %1。</translation>
    </message>
    <message>
        <source>The current one is kept, so you can switch back. Nothing is downloaded.</source>
        <translation>当前环境会保留，可以随时换回来。不需要下载。</translation>
    </message>
    <message>
        <source>Roll back to the previous environment?</source>
        <translation>要回退到上一个环境吗？</translation>
    </message>
    <message>
        <source>Windows may ask for administrator rights and a restart. After a restart, choose Use WSL again.</source>
        <translation>Windows 可能要求管理员权限并重启。重启后请再次选择“使用 WSL”。</translation>
    </message>
    <message>
        <source>Linux gets its own environment of the same size. Your files stay in Windows.</source>
        <translation>Linux 中会另建一个同样大小的环境。你的文件仍在 Windows 中。</translation>
    </message>
    <message>
        <source>Set up the Windows Subsystem for Linux?</source>
        <translation>要安装适用于 Linux 的 Windows 子系统吗？</translation>
    </message>
    <message>
        <source>Set up WSL</source>
        <translation>安装 WSL</translation>
    </message>
    <message>
        <source>Text (*.txt)</source>
        <translation>文本 (*.txt)</translation>
    </message>
    <message>
        <source>Save report</source>
        <translation>保存报告</translation>
    </message>
    <message>
        <source>Written to %1</source>
        <translation>已写入 %1</translation>
    </message>
</context>
<context>
    <name>EnvironmentStep</name>
    <message>
        <source>Try again</source>
        <translation>重试</translation>
    </message>
    <message>
        <source>Copy diagnostics</source>
        <translation>复制诊断信息</translation>
    </message>
    <message>
        <source>Install</source>
        <translation>安装</translation>
    </message>
    <message>
        <source>Choose version…</source>
        <translation>选择版本…</translation>
    </message>
    <message>
        <source>Offline. The packages must be downloaded first.</source>
        <translation>离线。需要先下载软件包。</translation>
    </message>
    <message>
        <source>Not enough disk space. Free %1, or choose another folder in step 2.</source>
        <translation>磁盘空间不足。请腾出 %1，或在第 2 步选择另一个文件夹。</translation>
    </message>
</context>
<context>
    <name>ErrorBanner</name>
    <message>
        <source>Code: %1</source>
        <translation>代码：%1</translation>
    </message>
</context>
<context>
    <name>EvaluationCard</name>
    <message>
        <source>Evaluate</source>
        <translation>评估</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Measured</source>
        <translation>指标</translation>
    </message>
    <message>
        <source>Before</source>
        <translation>训练前</translation>
    </message>
    <message>
        <source>After</source>
        <translation>训练后</translation>
    </message>
    <message>
        <source>Difference, 95% interval</source>
        <translation>差值，95% 区间</translation>
    </message>
    <message>
        <source>Before and after the run</source>
        <translation>运行前后对比</translation>
    </message>
    <message>
        <source>p</source>
        <translation>p 值</translation>
    </message>
    <message>
        <source>Answers the held-out rows with and without the adapter, and compares them.</source>
        <translation>分别在使用和不使用适配器的情况下回答留出的数据行，并进行比较。</translation>
    </message>
    <message>
        <source>Measured at step %1</source>
        <translation>在第 %1 步测得</translation>
    </message>
    <message>
        <source>Evaluating %1</source>
        <translation>正在评估 %1</translation>
    </message>
    <message>
        <source>Starting…</source>
        <translation>正在启动…</translation>
    </message>
    <message>
        <source>The evaluation was canceled.</source>
        <translation>评估已取消。</translation>
    </message>
    <message>
        <source>%1: %2 of %3</source>
        <translation>%1：%2 / %3</translation>
    </message>
</context>
<context>
    <name>EvaluationPane</name>
    <message>
        <source>This model writes no answers, so there are none to compare.</source>
        <translation>此模型不写回答，因此没有可比较的回答。</translation>
    </message>
    <message>
        <source>This run holds out no rows, so there are no answers to compare. Hold out a share to see answers before and after training.</source>
        <translation>这次训练没有留出数据行，因此没有可比较的回答。设置留出比例后，即可看到训练前后的回答。</translation>
    </message>
    <message>
        <source>Answers to held-out rows appear here, before and after training, side by side.</source>
        <translation>留出数据行在训练前后的回答会并排显示在这里。</translation>
    </message>
    <message>
        <source>This run has no answers to compare.</source>
        <translation>这次训练没有可比较的回答。</translation>
    </message>
    <message>
        <source>Report</source>
        <translation>报告</translation>
    </message>
    <message>
        <source>Evidence</source>
        <translation>依据</translation>
    </message>
    <message>
        <source>Save as HTML…</source>
        <translation>另存为 HTML…</translation>
    </message>
    <message>
        <source>Save as PDF…</source>
        <translation>另存为 PDF…</translation>
    </message>
    <message>
        <source>After step %1</source>
        <translation>第 %1 步之后</translation>
    </message>
    <message>
        <source>After training</source>
        <translation>训练后</translation>
    </message>
    <message>
        <source>Before</source>
        <translation>训练前</translation>
    </message>
    <message>
        <source>Expected</source>
        <translation>预期</translation>
    </message>
    <message>
        <source>Not asked yet</source>
        <translation>尚未提问</translation>
    </message>
</context>
<context>
    <name>ExampleDialog</name>
    <message>
        <source>Save as an example</source>
        <translation>保存为示例</translation>
    </message>
    <message>
        <source>Answer in the example</source>
        <translation>示例中的回答</translation>
    </message>
    <message>
        <source>Write what the answer should be. What was said before and the system prompt are saved with it.</source>
        <translation>请写下回答应有的内容。之前的对话和系统提示词会一并保存。</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Choose the file…</source>
        <translation>选择文件…</translation>
    </message>
</context>
<context>
    <name>ExplainLogDialog</name>
    <message>
        <source>Explain a log</source>
        <translation>解释日志</translation>
    </message>
    <message>
        <source>Paste what a training tool printed, or drop its file here. Nothing leaves this computer.</source>
        <translation>粘贴训练工具的输出，或把文件拖到这里。任何内容都不会离开这台电脑。</translation>
    </message>
    <message>
        <source>Text of the log</source>
        <translation>日志文本</translation>
    </message>
    <message>
        <source>Open file…</source>
        <translation>打开文件…</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>关闭</translation>
    </message>
    <message>
        <source>Open a log</source>
        <translation>打开日志</translation>
    </message>
</context>
<context>
    <name>Export</name>
    <message>
        <source>GGUF</source>
        <translation>GGUF</translation>
    </message>
    <message>
        <source>Merged model</source>
        <translation>合并模型</translation>
    </message>
    <message>
        <source>Whole model</source>
        <translation>完整模型</translation>
    </message>
    <message>
        <source>Adapter</source>
        <translation>适配器</translation>
    </message>
    <message>
        <source>GGUF adapter</source>
        <translation>GGUF 适配器</translation>
    </message>
    <message>
        <source>A folder with the trained model, for vLLM and Transformers.</source>
        <translation>包含训练后模型的文件夹，用于 vLLM 和 Transformers。</translation>
    </message>
    <message>
        <source>One file with everything, for llama.cpp, Ollama and LM Studio.</source>
        <translation>一个文件包含全部内容，可用于 llama.cpp、Ollama 和 LM Studio。</translation>
    </message>
    <message>
        <source>A folder with the adapter in the weights, for vLLM and Transformers.</source>
        <translation>适配器已合并进权重的文件夹，可用于 vLLM 和 Transformers。</translation>
    </message>
    <message>
        <source>The trained weights alone, for PEFT and vLLM. They need the base model.</source>
        <translation>只有训练得到的权重，可用于 PEFT 和 vLLM，需要搭配基础模型。</translation>
    </message>
    <message>
        <source>The trained weights alone, for llama.cpp and a base model in GGUF.</source>
        <translation>只有训练得到的权重，可用于 llama.cpp，需要搭配 GGUF 格式的基础模型。</translation>
    </message>
    <message>
        <source>4 bits: smallest, answers can change</source>
        <translation>4 位：文件最小，回答可能改变</translation>
    </message>
    <message>
        <source>5 bits: small, slightly closer</source>
        <translation>5 位：文件较小，略接近原模型</translation>
    </message>
    <message>
        <source>6 bits: close to the trained model</source>
        <translation>6 位：接近训练后的模型</translation>
    </message>
    <message>
        <source>8 bits: hardly any difference</source>
        <translation>8 位：几乎没有差别</translation>
    </message>
    <message>
        <source>16 bits: no loss that matters</source>
        <translation>16 位：几乎无损</translation>
    </message>
    <message>
        <source>16 bits: as most models are published</source>
        <translation>16 位：多数模型的发布格式</translation>
    </message>
    <message>
        <source>32 bits: exact, largest</source>
        <translation>32 位：完全精确，文件最大</translation>
    </message>
    <message>
        <source>%1 (recommended)</source>
        <translation>%1（推荐）</translation>
    </message>
    <message>
        <source>Final, step %1</source>
        <translation>最终结果，第 %1 步</translation>
    </message>
    <message>
        <source>Checkpoint of step %1</source>
        <translation>第 %1 步的检查点</translation>
    </message>
    <message>
        <source>%1 · held-out reward %2</source>
        <translation>%1 · 留出奖励 %2</translation>
    </message>
    <message>
        <source>%1 · evaluation loss %2</source>
        <translation>%1 · 评估损失 %2</translation>
    </message>
    <message>
        <source>%1 (best)</source>
        <translation>%1（最佳）</translation>
    </message>
    <message>
        <source>%1 free on this drive</source>
        <translation>此磁盘剩余 %1</translation>
    </message>
    <message>
        <source>Needs %1, but only %2 are free. Choose another folder or a smaller format.</source>
        <translation>需要 %1，但只剩 %2。请选择其他文件夹或更小的格式。</translation>
    </message>
    <message>
        <source>About %1 · %2 free on this drive</source>
        <translation>约 %1 · 此磁盘剩余 %2</translation>
    </message>
    <message>
        <source>Starting</source>
        <translation>正在启动</translation>
    </message>
    <message>
        <source>Merging the adapter into the weights</source>
        <translation>正在把适配器合并进权重</translation>
    </message>
    <message>
        <source>Writing the file</source>
        <translation>正在写入文件</translation>
    </message>
    <message>
        <source>Saving the adapter</source>
        <translation>正在保存适配器</translation>
    </message>
    <message>
        <source>Comparing with the trained model</source>
        <translation>正在与训练后的模型比较</translation>
    </message>
    <message>
        <source>Uploading to the model hub</source>
        <translation>正在上传到模型站</translation>
    </message>
    <message>
        <source>Finishing the files</source>
        <translation>正在完成文件</translation>
    </message>
    <message>
        <source>Handing over to the other programs</source>
        <translation>正在交给其他程序</translation>
    </message>
    <message>
        <source>%1: %2%</source>
        <translation>%1：%2%</translation>
    </message>
    <message>
        <source>It was not compared with the trained model.</source>
        <translation>没有与训练后的模型比较。</translation>
    </message>
    <message>
        <source>%1 That is what rounding to fewer bits costs.</source>
        <translation>%1 这是舍入到更少位数的代价。</translation>
    </message>
    <message>
        <source>Exported %1 as %2: %3</source>
        <translation>已将 %1 导出为 %2：%3</translation>
    </message>
    <message>
        <source>Export of %1 as %2: %3</source>
        <translation>将 %1 导出为 %2：%3</translation>
    </message>
    <message>
        <source>Copy command for %1</source>
        <translation>复制 %1 命令</translation>
    </message>
    <message>
        <source>Exporting %1</source>
        <translation>正在导出 %1</translation>
    </message>
    <message>
        <source>Uploading %1</source>
        <translation>正在上传 %1</translation>
    </message>
</context>
<context>
    <name>ExportForm</name>
    <message>
        <source>Format</source>
        <translation>格式</translation>
    </message>
    <message>
        <source>Number format</source>
        <translation>数值格式</translation>
    </message>
    <message>
        <source>GGUF is missing here: Tunesmith can&apos;t write it for models of type %1.</source>
        <translation>这里没有 GGUF：Tunesmith 无法为 %1 类型的模型生成 GGUF。</translation>
    </message>
    <message>
        <source>A merged model is missing here: in models of type %1 layers share weights, and the adapter changes them differently in each layer.</source>
        <translation>此处没有合并模型：%1 类型的模型中，各层共享权重，而适配器在每一层对它们的改动不同。</translation>
    </message>
    <message>
        <source>Restore the base model</source>
        <translation>恢复基础模型</translation>
    </message>
    <message>
        <source>Trained weights</source>
        <translation>训练得到的权重</translation>
    </message>
    <message>
        <source>Folder</source>
        <translation>文件夹</translation>
    </message>
    <message>
        <source>Change…</source>
        <translation>更改…</translation>
    </message>
    <message>
        <source>Change the folder</source>
        <translation>更改文件夹</translation>
    </message>
    <message>
        <source>Also into LM Studio</source>
        <translation>同时放入 LM Studio</translation>
    </message>
    <message>
        <source>Also upload it to the model hub, with its card</source>
        <translation>同时上传到模型站，并附上模型卡</translation>
    </message>
    <message>
        <source>Repository, as OWNER/NAME</source>
        <translation>仓库（所有者/名称）</translation>
    </message>
    <message>
        <source>Everybody may see it</source>
        <translation>所有人可见</translation>
    </message>
    <message>
        <source>Where to export to</source>
        <translation>导出到哪里</translation>
    </message>
    <message>
        <source>Also into Ollama, as %1</source>
        <translation>同时放入 Ollama，名为 %1</translation>
    </message>
    <message>
        <source>Name the repository to upload to, such as me/my-model.</source>
        <translation>请填写要上传到的仓库，例如 me/my-model。</translation>
    </message>
</context>
<context>
    <name>ExportSheet</name>
    <message>
        <source>Export “%1”</source>
        <translation>导出“%1”</translation>
    </message>
    <message>
        <source>Copy as command</source>
        <translation>复制为命令</translation>
    </message>
    <message>
        <source>Cancel export</source>
        <translation>取消导出</translation>
    </message>
    <message>
        <source>Export again…</source>
        <translation>再次导出…</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>关闭</translation>
    </message>
    <message>
        <source>Export</source>
        <translation>导出</translation>
    </message>
    <message>
        <source>Looking at the run…</source>
        <translation>正在查看该运行…</translation>
    </message>
    <message>
        <source>Export the merged model…</source>
        <translation>导出合并后的模型…</translation>
    </message>
    <message>
        <source>The export was canceled.</source>
        <translation>导出已取消。</translation>
    </message>
    <message>
        <source>Copied</source>
        <translation>已复制</translation>
    </message>
</context>
<context>
    <name>FileSummary</name>
    <message>
        <source>All data</source>
        <translation>全部数据</translation>
    </message>
    <message>
        <source>Other file…</source>
        <translation>其他文件…</translation>
    </message>
    <message>
        <source>Train with it</source>
        <translation>用它训练</translation>
    </message>
    <message>
        <source>Add to library…</source>
        <translation>加入数据集…</translation>
    </message>
    <message>
        <source>Write questions…</source>
        <translation>生成问答…</translation>
    </message>
    <message>
        <source>Write questions from documents</source>
        <translation>根据文档生成问答</translation>
    </message>
    <message>
        <source>Write answers…</source>
        <translation>生成回答…</translation>
    </message>
    <message>
        <source>Let a bigger model answer the prompts</source>
        <translation>让更大的模型回答提示词</translation>
    </message>
    <message>
        <source>Map columns…</source>
        <translation>指定各列…</translation>
    </message>
    <message>
        <source>Reading the first rows…</source>
        <translation>正在读取前几行…</translation>
    </message>
    <message>
        <source>Change columns…</source>
        <translation>更改列…</translation>
    </message>
    <message>
        <source>Your changes to the rows are not checked yet</source>
        <translation>对各行的修改尚未检查</translation>
    </message>
    <message>
        <source>Some rows of the file itself can&apos;t be used as they are.</source>
        <translation>文件本身有些行无法直接使用。</translation>
    </message>
    <message>
        <source>Every row can be used now</source>
        <translation>现在每一行都可以使用</translation>
    </message>
    <message>
        <source>Your file stays as it is.
Save a copy to train with your changes.</source>
        <translation>您的文件保持不变。
请保存副本，用修改后的数据训练。</translation>
    </message>
    <message>
        <source>“Fix and save as…” writes a copy that can be used. Or correct the row below.</source>
        <translation>“修复并另存为…”会写出可以使用的副本。也可以在下方更正该行。</translation>
    </message>
    <message>
        <source>Show the problems</source>
        <translation>查看问题</translation>
    </message>
    <message>
        <source>Fix and save as…</source>
        <translation>修复并另存为…</translation>
    </message>
    <message>
        <source>Check again to see what is wrong with them now.</source>
        <translation>请重新检查，查看现在还有什么问题。</translation>
    </message>
    <message>
        <source>Check again</source>
        <translation>重新检查</translation>
    </message>
    <message>
        <source>This model has a chat template. Trained without it, it may answer wrongly in a chat.</source>
        <translation>这个模型带有对话模板。不用模板训练，它在对话中可能答错。</translation>
    </message>
    <message>
        <source>Trained as plain text</source>
        <translation>按纯文本训练</translation>
    </message>
</context>
<context>
    <name>FilesTable</name>
    <message>
        <source>File</source>
        <translation>文件</translation>
    </message>
    <message>
        <source>Size</source>
        <translation>大小</translation>
    </message>
    <message>
        <source>Changed</source>
        <translation>修改时间</translation>
    </message>
</context>
<context>
    <name>FindBar</name>
    <message>
        <source>Find in the rows</source>
        <translation>在数据行中查找</translation>
    </message>
    <message>
        <source>Previous match</source>
        <translation>上一个匹配</translation>
    </message>
    <message>
        <source>Next match</source>
        <translation>下一个匹配</translation>
    </message>
    <message>
        <source>Stop searching</source>
        <translation>停止查找</translation>
    </message>
    <message>
        <source>Only matches</source>
        <translation>只显示匹配的行</translation>
    </message>
    <message>
        <source>Only rows with problems</source>
        <translation>只显示有问题的行</translation>
    </message>
    <message numerus="yes">
        <source>%Ln match(es)</source>
        <translation>
            <numerusform>%Ln 个匹配</numerusform>
        </translation>
    </message>
    <message>
        <source>%1, %2% searched</source>
        <translation>%1，已查找 %2%</translation>
    </message>
</context>
<context>
    <name>FolderStep</name>
    <message>
        <source>Browse…</source>
        <translation>浏览…</translation>
    </message>
    <message>
        <source>Choose another folder</source>
        <translation>选择另一个文件夹</translation>
    </message>
    <message>
        <source>This folder can&apos;t be used</source>
        <translation>这个文件夹不能用</translation>
    </message>
    <message>
        <source>Environments, models, runs and caches are stored here. The program itself does not move.</source>
        <translation>环境、模型、运行和缓存都存放在这里。程序本身不会移动。</translation>
    </message>
</context>
<context>
    <name>GetMore</name>
    <message>
        <source>Name of a model, such as qwen3 instruct</source>
        <translation>模型名称，例如 qwen3 instruct</translation>
    </message>
    <message>
        <source>Search for models</source>
        <translation>搜索模型</translation>
    </message>
    <message>
        <source>Search the hub</source>
        <translation>搜索模型站</translation>
    </message>
    <message>
        <source>Any size</source>
        <translation>任意大小</translation>
    </message>
    <message>
        <source>Up to 1 B</source>
        <translation>不超过 10 亿</translation>
    </message>
    <message>
        <source>1 to 4 B</source>
        <translation>10 亿至 40 亿</translation>
    </message>
    <message>
        <source>4 to 9 B</source>
        <translation>40 亿至 90 亿</translation>
    </message>
    <message>
        <source>9 to 20 B</source>
        <translation>90 亿至 200 亿</translation>
    </message>
    <message>
        <source>Over 20 B</source>
        <translation>超过 200 亿</translation>
    </message>
    <message>
        <source>Any license</source>
        <translation>任意许可证</translation>
    </message>
    <message>
        <source>Family</source>
        <translation>系列</translation>
    </message>
    <message>
        <source>Any family</source>
        <translation>任意系列</translation>
    </message>
    <message>
        <source>Number of parameters</source>
        <translation>参数量</translation>
    </message>
    <message>
        <source>License</source>
        <translation>许可证</translation>
    </message>
    <message>
        <source>Fits this computer</source>
        <translation>适合这台电脑</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Cancel the search</source>
        <translation>取消搜索</translation>
    </message>
    <message>
        <source>Searching the hub…</source>
        <translation>正在搜索模型站…</translation>
    </message>
    <message>
        <source>From the hub</source>
        <translation>来自模型站</translation>
    </message>
    <message>
        <source>The hub has no such model. Try other words or fewer filters.</source>
        <translation>模型站没有这样的模型。请换用其他关键词或减少筛选条件。</translation>
    </message>
    <message>
        <source>Offline: from the list of Tunesmith, as of %1</source>
        <translation>离线：来自 Tunesmith 的列表，截至 %1</translation>
    </message>
    <message>
        <source>Offline: no model of the list matches, and the hub can&apos;t be asked.</source>
        <translation>离线：列表中没有匹配的模型，也无法查询模型站。</translation>
    </message>
    <message>
        <source>No model of the list matches. Search the hub for others.</source>
        <translation>列表中没有匹配的模型。请在模型站搜索其他模型。</translation>
    </message>
    <message>
        <source>Recommended, as of %1</source>
        <translation>推荐（截至 %1）</translation>
    </message>
    <message>
        <source>Open settings</source>
        <translation>打开设置</translation>
    </message>
    <message>
        <source>Nothing is searched for or downloaded. Models on this computer can be used.</source>
        <translation>不会搜索或下载任何内容。仍可使用这台电脑上的模型。</translation>
    </message>
    <message>
        <source>You are working offline</source>
        <translation>您正在离线工作</translation>
    </message>
    <message>
        <source>Try again</source>
        <translation>重试</translation>
    </message>
    <message>
        <source>Set up</source>
        <translation>设置</translation>
    </message>
    <message>
        <source>Enter a token…</source>
        <translation>输入令牌…</translation>
    </message>
</context>
<context>
    <name>GoalCard</name>
    <message>
        <source>Goal and name</source>
        <translation>目标与名称</translation>
    </message>
    <message>
        <source>Stop when the evaluation loss no longer falls</source>
        <translation>评估损失不再下降时提前停止</translation>
    </message>
    <message>
        <source>Named after data and model</source>
        <translation>默认由数据和模型命名</translation>
    </message>
    <message>
        <source>Rows with the same value there are all trained or all held out.</source>
        <translation>该列值相同的行要么全部训练，要么全部留出。</translation>
    </message>
    <message>
        <source>Keep groups together by column</source>
        <translation>按列保持分组完整</translation>
    </message>
    <message>
        <source>Name of the run</source>
        <translation>运行的名称</translation>
    </message>
    <message>
        <source>Hold out %1% of the rows for evaluation</source>
        <translation>留出 %1% 的行用于评估</translation>
    </message>
    <message>
        <source>Evaluate on the file named in the settings</source>
        <translation>用设置中指定的文件评估</translation>
    </message>
    <message>
        <source>Stop when the held-out reward no longer rises</source>
        <translation>留出奖励不再上升时停止</translation>
    </message>
    <message>
        <source>No groups</source>
        <translation>不分组</translation>
    </message>
</context>
<context>
    <name>GpuCard</name>
    <message>
        <source>Memory of %1</source>
        <translation>%1 的显存</translation>
    </message>
    <message>
        <source>%1 of %2 in use, %3 free</source>
        <translation>已用 %1，共 %2，剩余 %3</translation>
    </message>
    <message>
        <source>The driver does not report memory use.</source>
        <translation>驱动未提供显存占用情况。</translation>
    </message>
    <message>
        <source>The programs that use it could not be determined.</source>
        <translation>无法查明哪些程序在使用。</translation>
    </message>
    <message>
        <source>No other program uses it.</source>
        <translation>没有其他程序在使用。</translation>
    </message>
    <message>
        <source>unknown</source>
        <translation>未知</translation>
    </message>
    <message>
        <source>In use by: %1</source>
        <translation>使用者：%1</translation>
    </message>
</context>
<context>
    <name>GpuStrip</name>
    <message>
        <source>Hardware</source>
        <translation>硬件</translation>
    </message>
    <message>
        <source>VRAM</source>
        <translation>显存</translation>
    </message>
    <message>
        <source>Load</source>
        <translation>负载</translation>
    </message>
    <message>
        <source>No GPU</source>
        <translation>无 GPU</translation>
    </message>
    <message>
        <source>RAM</source>
        <translation>内存</translation>
    </message>
    <message>
        <source>Processor</source>
        <translation>处理器</translation>
    </message>
    <message>
        <source>%1: VRAM %2</source>
        <translation>%1：显存 %2</translation>
    </message>
    <message>
        <source>RAM %1, processor %2%</source>
        <translation>内存 %1，处理器 %2%</translation>
    </message>
</context>
<context>
    <name>Grid</name>
    <message>
        <source>Rows</source>
        <translation>数据行</translation>
    </message>
    <message>
        <source>Undo</source>
        <translation>撤销</translation>
    </message>
    <message>
        <source>Save as…</source>
        <translation>另存为…</translation>
    </message>
    <message numerus="yes">
        <source>%Ln row(s)</source>
        <translation>
            <numerusform>共 %Ln 行</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln row(s) read so far</source>
        <translation>
            <numerusform>已读取 %Ln 行</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln row(s) up to the problem</source>
        <translation>
            <numerusform>出错处之前共 %Ln 行</numerusform>
        </translation>
    </message>
    <message>
        <source>looking for problems…</source>
        <translation>正在查找问题…</translation>
    </message>
    <message numerus="yes">
        <source>%Ln kept</source>
        <translation>
            <numerusform>已保留 %Ln 行</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln edited</source>
        <translation>
            <numerusform>已修改 %Ln 行</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln deleted</source>
        <translation>
            <numerusform>已删除 %Ln 行</numerusform>
        </translation>
    </message>
    <message>
        <source>Reading…</source>
        <translation>正在读取…</translation>
    </message>
    <message>
        <source>No row matches.</source>
        <translation>没有匹配的行。</translation>
    </message>
    <message>
        <source>Save as</source>
        <translation>另存为</translation>
    </message>
    <message>
        <source>%1 shown</source>
        <translation>显示 %1 行</translation>
    </message>
</context>
<context>
    <name>HubLook</name>
    <message>
        <source>%1 are downloaded when the run starts. %2 are free.</source>
        <translation>运行开始时下载 %1。可用空间 %2。</translation>
    </message>
    <message>
        <source>Not enough room: %1 to download, but only %2 are free.</source>
        <translation>空间不足：需下载 %1，但可用空间只有 %2。</translation>
    </message>
</context>
<context>
    <name>KeepDialog</name>
    <message>
        <source>Add to the library</source>
        <translation>加入数据集列表</translation>
    </message>
    <message>
        <source>The library remembers the file, its versions and the runs that used them. The file stays put.</source>
        <translation>列表会记住文件、它的各个版本以及用过它的运行。文件仍在原处。</translation>
    </message>
    <message>
        <source>Name</source>
        <translation>名称</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Replace %1 in the library?</source>
        <translation>要替换数据集列表中的“%1”吗？</translation>
    </message>
    <message>
        <source>The library already keeps %1 as %2.</source>
        <translation>数据集列表中的“%2”已是 %1。</translation>
    </message>
    <message>
        <source>The versions of the data set are kept. No file is changed.</source>
        <translation>数据集的各个版本会保留，文件本身不会改动。</translation>
    </message>
    <message>
        <source>Add as %1</source>
        <translation>以“%1”加入</translation>
    </message>
    <message>
        <source>Replace</source>
        <translation>替换</translation>
    </message>
</context>
<context>
    <name>LargeChartDialog</name>
    <message>
        <source>Close (Esc)</source>
        <translation>关闭（Esc）</translation>
    </message>
</context>
<context>
    <name>LearnsPane</name>
    <message>
        <source>Model</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>Choose a model, or type a folder or hub id</source>
        <translation>选择模型，或输入文件夹或模型库 ID</translation>
    </message>
    <message>
        <source>Text</source>
        <translation>文本</translation>
    </message>
    <message>
        <source>List of tokens</source>
        <translation>词元列表</translation>
    </message>
    <message>
        <source>Tokens as</source>
        <translation>词元显示方式</translation>
    </message>
    <message>
        <source>Previous row</source>
        <translation>上一行</translation>
    </message>
    <message>
        <source>Next row</source>
        <translation>下一行</translation>
    </message>
    <message>
        <source>The model learns the underlined tokens. The rest is context. Control tokens are colored.</source>
        <translation>模型学习带下划线的词元，其余是上下文。控制词元用颜色标出。</translation>
    </message>
    <message>
        <source>The model learns the tokens marked “yes”. The rest is context.</source>
        <translation>模型学习标为“是”的词元，其余是上下文。</translation>
    </message>
    <message>
        <source>Say first which column is which.</source>
        <translation>请先指定各列的含义。</translation>
    </message>
    <message>
        <source>Choose a model. Its tokenizer makes the tokens.</source>
        <translation>请选择模型，词元由它的分词器生成。</translation>
    </message>
    <message>
        <source>Reading the data with the model&apos;s own tokenizer…</source>
        <translation>正在用模型自带的分词器读取数据…</translation>
    </message>
    <message>
        <source>Set up training</source>
        <translation>设置训练环境</translation>
    </message>
    <message>
        <source>The tokens come from the model&apos;s own tokenizer, which is part of it.</source>
        <translation>词元由模型自带的分词器生成，而分词器要在训练环境中运行。</translation>
    </message>
    <message>
        <source>Training is not set up yet</source>
        <translation>训练环境尚未设置</translation>
    </message>
    <message numerus="yes">
        <source>%Ln row(s)</source>
        <translation>
            <numerusform>共 %Ln 行</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>The first %Ln row(s)</source>
        <translation>
            <numerusform>前 %Ln 行</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln token(s)</source>
        <translation>
            <numerusform>%Ln 个词元</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>longest %Ln token(s)</source>
        <translation>
            <numerusform>最长 %Ln 个词元</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%1  ·  %Ln token(s), %2 learned</source>
        <translation>
            <numerusform>%1  ·  %Ln 个词元，学习 %2 个</numerusform>
        </translation>
    </message>
    <message>
        <source>%1 learned (%2%)</source>
        <translation>学习 %1 个（%2%）</translation>
    </message>
    <message>
        <source>%1% cut off at the context length of %2</source>
        <translation>%1% 超出 %2 个词元的上下文，会被截断</translation>
    </message>
    <message>
        <source>%1 skipped</source>
        <translation>跳过 %1 行</translation>
    </message>
    <message>
        <source>%1 without learned tokens</source>
        <translation>%1 行没有可学习的词元</translation>
    </message>
    <message>
        <source>trained as a chat</source>
        <translation>按对话训练</translation>
    </message>
    <message>
        <source>Reading the row…</source>
        <translation>正在读取这一行…</translation>
    </message>
    <message>
        <source>The run leaves this row out: %1</source>
        <translation>训练时会跳过这一行：%1</translation>
    </message>
    <message>
        <source>%1  ·  edited, not saved yet</source>
        <translation>%1  ·  已修改，尚未保存</translation>
    </message>
</context>
<context>
    <name>LengthHistogram</name>
    <message>
        <source>Lengths of the examples in tokens</source>
        <translation>样本长度（词元）</translation>
    </message>
    <message>
        <source>%1 tokens</source>
        <translation>%1 词元</translation>
    </message>
    <message>
        <source>context ends at the dashed line</source>
        <translation>虚线处为上下文长度</translation>
    </message>
</context>
<context>
    <name>LibraryCard</name>
    <message>
        <source>Library</source>
        <translation>数据集</translation>
    </message>
    <message>
        <source>Remove %1 from the library</source>
        <translation>从数据集列表中移除 %1</translation>
    </message>
    <message>
        <source>%1 is not there any more</source>
        <translation>%1 已不存在</translation>
    </message>
    <message>
        <source>Synthetic</source>
        <translation>合成数据</translation>
    </message>
    <message>
        <source>version %1</source>
        <translation>第 %1 版</translation>
    </message>
    <message numerus="yes">
        <source>used by %n run(s)</source>
        <translation>
            <numerusform>%n 次运行用过</numerusform>
        </translation>
    </message>
    <message>
        <source>not used yet</source>
        <translation>尚未使用</translation>
    </message>
</context>
<context>
    <name>LibraryPage</name>
    <message>
        <source>Models</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>On this computer</source>
        <translation>这台电脑上</translation>
    </message>
    <message>
        <source>Get more</source>
        <translation>获取更多</translation>
    </message>
    <message>
        <source>Downloads</source>
        <translation>下载</translation>
    </message>
    <message>
        <source>Cancel the download of %1?</source>
        <translation>取消下载 %1？</translation>
    </message>
    <message>
        <source>This deletes the %1 that have arrived.</source>
        <translation>这将删除已下载的 %1。</translation>
    </message>
    <message>
        <source>Keep the download</source>
        <translation>保留下载</translation>
    </message>
    <message>
        <source>To continue later, pause it instead.</source>
        <translation>如果以后要继续，请改为暂停。</translation>
    </message>
    <message>
        <source>Base models for your runs</source>
        <translation>供运行训练的基础模型</translation>
    </message>
    <message>
        <source>Cancel the download</source>
        <translation>取消下载</translation>
    </message>
    <message>
        <source>%1 is on this computer now.</source>
        <translation>%1 已在这台电脑上。</translation>
    </message>
</context>
<context>
    <name>Lists</name>
    <message>
        <source>, </source>
        <translation>、</translation>
    </message>
</context>
<context>
    <name>LogConsole</name>
    <message>
        <source>Find in the log</source>
        <translation>在日志中查找</translation>
    </message>
    <message>
        <source>All</source>
        <translation>全部</translation>
    </message>
    <message>
        <source>Warnings</source>
        <translation>警告</translation>
    </message>
    <message>
        <source>Errors</source>
        <translation>错误</translation>
    </message>
    <message>
        <source>Level</source>
        <translation>级别</translation>
    </message>
    <message>
        <source>Copy</source>
        <translation>复制</translation>
    </message>
    <message>
        <source>Log</source>
        <translation>日志</translation>
    </message>
</context>
<context>
    <name>LogPane</name>
    <message>
        <source>Run log</source>
        <translation>运行日志</translation>
    </message>
    <message>
        <source>Engine output</source>
        <translation>引擎输出</translation>
    </message>
    <message>
        <source>What to show</source>
        <translation>显示内容</translation>
    </message>
    <message>
        <source>Only the end is shown.</source>
        <translation>只显示末尾部分。</translation>
    </message>
    <message>
        <source>No engine output yet.</source>
        <translation>引擎还没有输出。</translation>
    </message>
</context>
<context>
    <name>LossCard</name>
    <message>
        <source>Loss</source>
        <translation>损失</translation>
    </message>
    <message>
        <source>Step</source>
        <translation>步</translation>
    </message>
    <message>
        <source>Time</source>
        <translation>时间</translation>
    </message>
    <message>
        <source>Tokens</source>
        <translation>词元</translation>
    </message>
    <message>
        <source>Horizontal axis</source>
        <translation>横轴</translation>
    </message>
    <message>
        <source>Smoothing</source>
        <translation>平滑</translation>
    </message>
    <message>
        <source>Logarithmic loss axis</source>
        <translation>损失轴用对数刻度</translation>
    </message>
    <message>
        <source>Show all</source>
        <translation>显示全部</translation>
    </message>
    <message>
        <source>Held-out %1</source>
        <translation>留出数据：%1</translation>
    </message>
    <message>
        <source>checkpoint</source>
        <translation>检查点</translation>
    </message>
    <message>
        <source>evaluation</source>
        <translation>评估</translation>
    </message>
    <message>
        <source>best evaluation</source>
        <translation>最佳评估</translation>
    </message>
    <message>
        <source>No loss yet</source>
        <translation>还没有损失</translation>
    </message>
    <message>
        <source>Log scale</source>
        <translation>对数刻度</translation>
    </message>
    <message>
        <source>Loss %1, down from %2, step %3 of %4</source>
        <translation>损失 %1，从 %2 下降，第 %3 / %4 步</translation>
    </message>
    <message>
        <source>Loss %1, up from %2, step %3 of %4</source>
        <translation>损失 %1，从 %2 上升，第 %3 / %4 步</translation>
    </message>
    <message>
        <source>loss</source>
        <translation>损失</translation>
    </message>
    <message>
        <source>smoothed</source>
        <translation>平滑</translation>
    </message>
</context>
<context>
    <name>MainWindow</name>
    <message>
        <source>A run is in progress</source>
        <translation>有运行在进行</translation>
    </message>
    <message>
        <source>Idle</source>
        <translation>没有运行</translation>
    </message>
    <message>
        <source>%1%, %2</source>
        <translation>%1%，%2</translation>
    </message>
    <message>
        <source>%1: %2</source>
        <translation>%1：%2</translation>
    </message>
    <message numerus="yes">
        <source>%n active run(s)</source>
        <translation>
            <numerusform>%n 个运行未结束</numerusform>
        </translation>
    </message>
    <message>
        <source>The setting was not saved. It holds until you close Tunesmith.</source>
        <translation>该设置未能保存，仅在关闭 Tunesmith 之前有效。</translation>
    </message>
    <message>
        <source>%1 is still running.</source>
        <translation>%1 仍在运行。</translation>
    </message>
</context>
<context>
    <name>MetricPlot</name>
    <message>
        <source>Step</source>
        <translation>步</translation>
    </message>
    <message>
        <source>No data yet</source>
        <translation>暂无数据</translation>
    </message>
    <message>
        <source>No data</source>
        <translation>无数据</translation>
    </message>
    <message>
        <source>Follow the run</source>
        <translation>跟随运行</translation>
    </message>
    <message>
        <source>Show the whole run</source>
        <translation>显示整次运行</translation>
    </message>
    <message>
        <source>%1 (at %2)</source>
        <translation>%1（位于 %2）</translation>
    </message>
</context>
<context>
    <name>ModelPicker</name>
    <message>
        <source>Model</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>Choose a model</source>
        <translation>请选择模型</translation>
    </message>
    <message>
        <source>Browse for a model folder</source>
        <translation>浏览模型文件夹</translation>
    </message>
    <message>
        <source>A Hugging Face model folder on this computer, or a hub id such as org/name.</source>
        <translation>这台电脑上的 Hugging Face 模型文件夹，或 org/name 形式的模型站编号。</translation>
    </message>
    <message>
        <source>Choose another folder…</source>
        <translation>选择其他文件夹…</translation>
    </message>
    <message>
        <source>Try again</source>
        <translation>重试</translation>
    </message>
    <message>
        <source>Open in Models</source>
        <translation>在“模型”中打开</translation>
    </message>
    <message>
        <source>Downloaded from the hub when the run starts. The plan follows after that.</source>
        <translation>运行开始时从 Hub 下载，之后才会显示计划。</translation>
    </message>
    <message>
        <source>Looking at the model…</source>
        <translation>正在查看模型…</translation>
    </message>
    <message>
        <source>Choose a model folder</source>
        <translation>选择模型文件夹</translation>
    </message>
</context>
<context>
    <name>ModelRow</name>
    <message>
        <source>Import…</source>
        <translation>导入…</translation>
    </message>
    <message>
        <source>Import %1</source>
        <translation>导入 %1</translation>
    </message>
    <message>
        <source>Train with it</source>
        <translation>用它训练</translation>
    </message>
    <message>
        <source>Train with %1</source>
        <translation>用 %1 训练</translation>
    </message>
    <message>
        <source>More</source>
        <translation>更多</translation>
    </message>
    <message>
        <source>More for %1</source>
        <translation>%1 的更多操作</translation>
    </message>
    <message>
        <source>Show in the file manager</source>
        <translation>在文件管理器中显示</translation>
    </message>
    <message>
        <source>Verify the files</source>
        <translation>校验文件</translation>
    </message>
    <message>
        <source>Delete…</source>
        <translation>删除…</translation>
    </message>
    <message>
        <source>It was not downloaded from a model hub, so there are no hashes to compare it with.</source>
        <translation>该模型不是从模型站下载的，因此没有可供比较的哈希值。</translation>
    </message>
</context>
<context>
    <name>ModelSheet</name>
    <message>
        <source>Asking the hub…</source>
        <translation>正在询问模型站…</translation>
    </message>
    <message>
        <source>Model card</source>
        <translation>模型卡片</translation>
    </message>
    <message>
        <source>Open its page</source>
        <translation>打开其页面</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>关闭</translation>
    </message>
    <message>
        <source>Download</source>
        <translation>下载</translation>
    </message>
    <message>
        <source>Train with it</source>
        <translation>用它训练</translation>
    </message>
    <message>
        <source>%1 to download. %2 are free.</source>
        <translation>需下载 %1。可用空间 %2。</translation>
    </message>
    <message>
        <source>Not enough room: %1 to download, but only %2 are free.</source>
        <translation>空间不足：需下载 %1，但可用空间只有 %2。</translation>
    </message>
    <message>
        <source>It is on this computer.</source>
        <translation>它已在这台电脑上。</translation>
    </message>
    <message>
        <source>Accept the license on the model&apos;s page with your account, then enter an access token of that account.</source>
        <translation>请用您的账号在模型页面上接受许可证，然后输入该账号的访问令牌。</translation>
    </message>
    <message>
        <source>Access on request</source>
        <translation>需申请访问</translation>
    </message>
    <message>
        <source>Open the license page</source>
        <translation>打开许可证页面</translation>
    </message>
    <message>
        <source>Enter a token…</source>
        <translation>输入令牌…</translation>
    </message>
    <message>
        <source>Try again</source>
        <translation>重试</translation>
    </message>
    <message>
        <source>Set up</source>
        <translation>设置</translation>
    </message>
    <message>
        <source>Look at %1</source>
        <translation>查看 %1</translation>
    </message>
</context>
<context>
    <name>ModelWords</name>
    <message>
        <source>%1 B parameters</source>
        <translation>%1B 参数</translation>
    </message>
    <message>
        <source>%1 M parameters</source>
        <translation>%1M 参数</translation>
    </message>
    <message>
        <source>%1 K parameters</source>
        <translation>%1K 参数</translation>
    </message>
    <message>
        <source>Fits</source>
        <translation>适合</translation>
    </message>
    <message>
        <source>Tight</source>
        <translation>紧张</translation>
    </message>
    <message>
        <source>Does not fit</source>
        <translation>放不下</translation>
    </message>
    <message>
        <source>Nothing to learn</source>
        <translation>没有可学的内容</translation>
    </message>
    <message>
        <source>Check first</source>
        <translation>请先检查</translation>
    </message>
    <message>
        <source>QLoRA: %1</source>
        <translation>QLoRA：%1</translation>
    </message>
    <message>
        <source>LoRA: %1</source>
        <translation>LoRA：%1</translation>
    </message>
    <message>
        <source>license unknown</source>
        <translation>许可证未知</translation>
    </message>
    <message>
        <source>chat template found</source>
        <translation>有对话模板</translation>
    </message>
    <message>
        <source>no chat template</source>
        <translation>无对话模板</translation>
    </message>
    <message>
        <source>context of %1 tokens</source>
        <translation>上下文 %1 个词元</translation>
    </message>
    <message>
        <source>%1 of %2</source>
        <translation>%1 / %2</translation>
    </message>
    <message>
        <source>%1/s</source>
        <translation>%1/秒</translation>
    </message>
    <message>
        <source>about %1 left</source>
        <translation>剩余约 %1</translation>
    </message>
</context>
<context>
    <name>NewRunActions</name>
    <message>
        <source>What has arrived of the model is kept. Start continues the download.</source>
        <translation>已下载的部分会保留。点击开始可继续下载。</translation>
    </message>
    <message>
        <source>The run has started.</source>
        <translation>运行已开始。</translation>
    </message>
    <message>
        <source>Show it</source>
        <translation>查看</translation>
    </message>
    <message>
        <source>Complete the form first.</source>
        <translation>请先填完表单。</translation>
    </message>
    <message>
        <source>The command was copied.</source>
        <translation>命令已复制。</translation>
    </message>
    <message>
        <source>The spec was copied.</source>
        <translation>配置已复制。</translation>
    </message>
    <message>
        <source>Run spec (*.json)</source>
        <translation>运行配置 (*.json)</translation>
    </message>
    <message>
        <source>Save spec</source>
        <translation>保存配置</translation>
    </message>
    <message>
        <source>Written to %1</source>
        <translation>已写入 %1</translation>
    </message>
</context>
<context>
    <name>NewRunForm</name>
    <message>
        <source>The data has no such column. Choose another one, or none.</source>
        <translation>数据中没有这一列。请换一列，或不分组。</translation>
    </message>
    <message>
        <source>The plan appears once a bigger model is chosen.</source>
        <translation>选好更大的模型后才会显示计划。</translation>
    </message>
    <message>
        <source>The plan appears once the data suits the way to teach.</source>
        <translation>数据适合所选的训练方式后才会显示计划。</translation>
    </message>
</context>
<context>
    <name>NewRunPage</name>
    <message>
        <source>New run</source>
        <translation>新建运行</translation>
    </message>
    <message>
        <source>Set up</source>
        <translation>设置</translation>
    </message>
    <message>
        <source>Check again</source>
        <translation>重新检查</translation>
    </message>
    <message>
        <source>Training is not set up yet</source>
        <translation>训练环境还没有装好</translation>
    </message>
    <message>
        <source>You can look around, but training needs this step.</source>
        <translation>你可以先随便看看，但训练需要完成这一步。</translation>
    </message>
    <message>
        <source>No NVIDIA GPU found</source>
        <translation>没有找到 NVIDIA 显卡</translation>
    </message>
    <message>
        <source>The window&apos;s own libraries need repair</source>
        <translation>程序窗口自身的库需要修复</translation>
    </message>
    <message>
        <source>Training works. The window may not start the next time.</source>
        <translation>训练不受影响，但下次可能无法打开窗口。</translation>
    </message>
    <message>
        <source>The training environment belongs to another version of Tunesmith</source>
        <translation>训练环境属于另一个版本的 Tunesmith</translation>
    </message>
    <message>
        <source>The plan appears once rows that can&apos;t be used are skipped or repaired.</source>
        <translation>跳过或修复不能使用的行后，会显示计划。</translation>
    </message>
    <message>
        <source>Open in Models</source>
        <translation>在“模型”中打开</translation>
    </message>
    <message>
        <source>Runs may fail. Everything else works.</source>
        <translation>运行可能会失败，其他功能不受影响。</translation>
    </message>
    <message>
        <source>Choose how to teach, a model, data and a preset. The rest is already set.</source>
        <translation>选择训练方式、模型、数据和预设，其余都已设好。</translation>
    </message>
    <message>
        <source>Training will use the processor, which is slow. Models under 0.5 B parameters suit it best.</source>
        <translation>将使用处理器训练，速度较慢。最适合 0.5 B 参数以下的模型。</translation>
    </message>
    <message>
        <source>These checks of your computer failed, so runs may fail</source>
        <translation>以下电脑检查未通过，运行可能会失败</translation>
    </message>
    <message>
        <source>The plan appears once every setting is valid.</source>
        <translation>所有设置填写正确后才会显示计划。</translation>
    </message>
    <message>
        <source>The plan appears once the model is downloaded.</source>
        <translation>模型下载完成后才会显示计划。</translation>
    </message>
    <message>
        <source>There is no plan for this model or device.</source>
        <translation>这个模型或设备没有计划可用。</translation>
    </message>
    <message>
        <source>Choose a model and data to see how much memory the run needs.</source>
        <translation>选择模型和数据后，这里会显示运行需要多少内存。</translation>
    </message>
    <message>
        <source>The training environment needs repair</source>
        <translation>训练环境需要修复</translation>
    </message>
    <message>
        <source>Open</source>
        <translation>打开</translation>
    </message>
    <message>
        <source>The plan appears once the data can be read.</source>
        <translation>数据可读后才会显示计划。</translation>
    </message>
    <message>
        <source>Copy diagnostics</source>
        <translation>复制诊断信息</translation>
    </message>
</context>
<context>
    <name>OfferRow</name>
    <message>
        <source>Download…</source>
        <translation>下载…</translation>
    </message>
    <message>
        <source>Train with it</source>
        <translation>用它训练</translation>
    </message>
    <message>
        <source>Download %1</source>
        <translation>下载 %1</translation>
    </message>
    <message>
        <source>Train with %1</source>
        <translation>用 %1 训练</translation>
    </message>
    <message>
        <source>You are working offline</source>
        <translation>您正在离线工作</translation>
    </message>
    <message>
        <source>Access on request</source>
        <translation>需申请访问</translation>
    </message>
    <message>
        <source>On this computer</source>
        <translation>这台电脑上</translation>
    </message>
</context>
<context>
    <name>Offers</name>
    <message>
        <source>%1 downloads</source>
        <translation>%1 次下载</translation>
    </message>
    <message>
        <source>size unknown</source>
        <translation>大小未知</translation>
    </message>
    <message>
        <source>about %1</source>
        <translation>大约 %1</translation>
    </message>
</context>
<context>
    <name>OnComputer</name>
    <message>
        <source>Import folder…</source>
        <translation>导入文件夹…</translation>
    </message>
    <message>
        <source>Import GGUF…</source>
        <translation>导入 GGUF…</translation>
    </message>
    <message>
        <source>Looking for models…</source>
        <translation>正在查找模型…</translation>
    </message>
    <message>
        <source>Get a model</source>
        <translation>获取模型</translation>
    </message>
    <message>
        <source>From other programs</source>
        <translation>来自其他程序</translation>
    </message>
    <message>
        <source>Tunesmith reads these models and changes nothing.</source>
        <translation>Tunesmith 只读取这些模型，不做任何更改。</translation>
    </message>
    <message numerus="yes">
        <source>%Ln model(s) take up %1 on this computer.</source>
        <translation>
            <numerusform>%Ln 个模型，共占用 %1。</numerusform>
        </translation>
    </message>
    <message>
        <source>Try again</source>
        <translation>重试</translation>
    </message>
    <message>
        <source>%1 are moved to the trash, from where the model can be restored: Runs, Trash…</source>
        <translation>%1 将移到回收站，可从那里恢复该模型：运行、回收站…</translation>
    </message>
    <message>
        <source>Moved to the trash. To restore it: Runs, Trash…</source>
        <translation>已移到回收站。要恢复：运行、回收站…</translation>
    </message>
    <message>
        <source>Verifying %1</source>
        <translation>正在校验 %1</translation>
    </message>
    <message>
        <source>%1 is what the hub has, file by file.</source>
        <translation>%1 的每个文件都与模型站一致。</translation>
    </message>
    <message>
        <source>No models in the library yet</source>
        <translation>模型库中还没有模型</translation>
    </message>
    <message>
        <source>Download one, or import a folder with safetensors files, such as one that a run has used.</source>
        <translation>可以下载一个模型，或导入包含 safetensors 文件的文件夹，例如某个运行用过的文件夹。</translation>
    </message>
    <message>
        <source>%1 has changed since it was downloaded</source>
        <translation>%1 在下载后发生了变化</translation>
    </message>
    <message>
        <source>Missing or changed: %1. Delete the model and download it again.</source>
        <translation>缺失或已更改：%1。请删除该模型并重新下载。</translation>
    </message>
    <message>
        <source>The run %1 is training with it. Stop the run first.</source>
        <translation>运行 %1 正在用它训练。请先停止该运行。</translation>
    </message>
    <message>
        <source>Delete %1?</source>
        <translation>删除 %1？</translation>
    </message>
    <message>
        <source>Move to the trash</source>
        <translation>移到回收站</translation>
    </message>
    <message>
        <source>No run uses it.</source>
        <translation>没有运行使用它。</translation>
    </message>
    <message numerus="yes">
        <source>%1 and %n more</source>
        <translation>
            <numerusform>%1 以及另外 %n 个</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%n run(s) use it and can&apos;t be resumed, asked or exported without it:</source>
        <translation>
            <numerusform>有 %n 个运行使用它，没有它就无法恢复、提问或导出：</numerusform>
        </translation>
    </message>
    <message>
        <source>Choose a model folder</source>
        <translation>选择模型文件夹</translation>
    </message>
    <message>
        <source>GGUF files (*.gguf)</source>
        <translation>GGUF 文件 (*.gguf)</translation>
    </message>
    <message>
        <source>Choose a GGUF file</source>
        <translation>选择 GGUF 文件</translation>
    </message>
    <message>
        <source>Importing %1</source>
        <translation>正在导入 %1</translation>
    </message>
    <message>
        <source>%1 was imported.</source>
        <translation>已导入 %1。</translation>
    </message>
</context>
<context>
    <name>OpenFile</name>
    <message>
        <source>Rows</source>
        <translation>行</translation>
    </message>
    <message>
        <source>What it learns</source>
        <translation>学习内容</translation>
    </message>
    <message>
        <source>Problems</source>
        <translation>问题</translation>
    </message>
    <message>
        <source>What is shown</source>
        <translation>显示内容</translation>
    </message>
    <message>
        <source>Set up training</source>
        <translation>设置训练环境</translation>
    </message>
    <message>
        <source>Files of this kind are read by its libraries. JSON, CSV and text files open without it.</source>
        <translation>这类文件要用训练环境中的库读取。JSON、CSV 和文本文件无需训练环境即可打开。</translation>
    </message>
    <message>
        <source>Training is not set up yet</source>
        <translation>训练环境尚未设置</translation>
    </message>
    <message>
        <source>Saved as %1</source>
        <translation>已保存为 %1</translation>
    </message>
    <message>
        <source>Open the copy</source>
        <translation>打开副本</translation>
    </message>
</context>
<context>
    <name>Outcome</name>
    <message>
        <source>Open folder</source>
        <translation>打开文件夹</translation>
    </message>
    <message>
        <source>%1 in %2</source>
        <translation>%1，位于 %2</translation>
    </message>
</context>
<context>
    <name>Page</name>
    <message>
        <source>No file manager was found. The folder is %1</source>
        <translation>没有找到文件管理器。文件夹位于 %1</translation>
    </message>
    <message>
        <source>Undo</source>
        <translation>撤销</translation>
    </message>
</context>
<context>
    <name>PageStack</name>
    <message>
        <source>This page could not be opened</source>
        <translation>无法打开这个页面</translation>
    </message>
    <message>
        <source>Copy diagnostics</source>
        <translation>复制诊断信息</translation>
    </message>
</context>
<context>
    <name>PathCombo</name>
    <message>
        <source>%1 in %2</source>
        <translation>%1（位于 %2）</translation>
    </message>
</context>
<context>
    <name>Phase</name>
    <message>
        <source>Starting the engine</source>
        <translation>正在启动训练引擎</translation>
    </message>
    <message>
        <source>Loading the model</source>
        <translation>正在加载模型</translation>
    </message>
    <message>
        <source>Reading the data</source>
        <translation>正在读取数据</translation>
    </message>
    <message>
        <source>Training</source>
        <translation>正在训练</translation>
    </message>
    <message>
        <source>Evaluating</source>
        <translation>正在评估</translation>
    </message>
    <message>
        <source>Saving</source>
        <translation>正在保存</translation>
    </message>
</context>
<context>
    <name>Places</name>
    <message>
        <source>This folder is set by the variable %1 and can&apos;t be changed here.</source>
        <translation>这个文件夹由变量 %1 指定，不能在这里更改。</translation>
    </message>
    <message>
        <source>This folder already contains an environment, models or runs and can&apos;t be changed here.</source>
        <translation>这个文件夹中已有环境、模型或运行，不能在这里更改。</translation>
    </message>
    <message>
        <source>Can&apos;t write to %1. Choose another folder.</source>
        <translation>无法写入 %1。请选择其他文件夹。</translation>
    </message>
    <message>
        <source>Environments and caches go to a short folder on the same drive: %1</source>
        <translation>环境和缓存会放到同一磁盘上的短路径文件夹：%1</translation>
    </message>
</context>
<context>
    <name>PlanCard</name>
    <message>
        <source>Base model</source>
        <translation>基础模型</translation>
    </message>
    <message>
        <source>Adapter and optimizer</source>
        <translation>适配器与优化器</translation>
    </message>
    <message>
        <source>Intermediate results</source>
        <translation>中间结果</translation>
    </message>
    <message>
        <source>Predictions</source>
        <translation>预测结果</translation>
    </message>
    <message>
        <source>Libraries</source>
        <translation>程序库</translation>
    </message>
    <message>
        <source>rough estimate</source>
        <translation>粗略估计</translation>
    </message>
    <message>
        <source>estimate</source>
        <translation>估计</translation>
    </message>
    <message>
        <source>close estimate</source>
        <translation>较准确的估计</translation>
    </message>
    <message>
        <source>Check the plan</source>
        <translation>检查计划</translation>
    </message>
    <message>
        <source>Choose a model and data to see how much memory the run needs.</source>
        <translation>选择模型和数据后，这里会显示运行需要多少内存。</translation>
    </message>
    <message>
        <source>%1: %2</source>
        <translation>%1：%2</translation>
    </message>
    <message>
        <source>Trains one step on the longest examples to measure memory and time.</source>
        <translation>用最长的样本训练一步，测量内存和时间。</translation>
    </message>
    <message>
        <source>Time based on the run “%1” with the same model and method.</source>
        <translation>时间根据运行“%1”（相同的模型和方法）估算。</translation>
    </message>
    <message>
        <source>Minimum memory</source>
        <translation>最低内存</translation>
    </message>
    <message>
        <source>Accuracy</source>
        <translation>准确度</translation>
    </message>
    <message>
        <source>Ways to make it fit</source>
        <translation>让它放得下的办法</translation>
    </message>
    <message>
        <source>Plan</source>
        <translation>计划</translation>
    </message>
    <message>
        <source>Memory plan</source>
        <translation>内存计划</translation>
    </message>
    <message>
        <source>The weights that are trained, their gradients and the optimizer&apos;s state.</source>
        <translation>参与训练的权重、它们的梯度和优化器状态。</translation>
    </message>
    <message>
        <source>Gradients and optimizer</source>
        <translation>梯度与优化器</translation>
    </message>
    <message>
        <source>Bigger model</source>
        <translation>更大的模型</translation>
    </message>
    <message>
        <source>Answers</source>
        <translation>回答</translation>
    </message>
    <message>
        <source>Reward models</source>
        <translation>奖励模型</translation>
    </message>
    <message>
        <source>What trained weights need beside themselves: gradients and states.</source>
        <translation>训练的权重之外还需要的内容：梯度和优化器状态。</translation>
    </message>
    <message>
        <source>Activations: what the layers keep until the gradients are computed.</source>
        <translation>激活值：各层保留到梯度计算完成的中间数据。</translation>
    </message>
    <message>
        <source>Logits: a score for each token of the vocabulary.</source>
        <translation>Logits：词表中每个词元的得分。</translation>
    </message>
    <message>
        <source>Keys, values and logits of the answers that the model writes at once.</source>
        <translation>模型同时写的各个回答的键、值和 logits。</translation>
    </message>
    <message>
        <source>What PyTorch and other libraries take for themselves.</source>
        <translation>PyTorch 等程序库自身占用的部分。</translation>
    </message>
    <message>
        <source>Measuring how long the examples are. The memory may change.</source>
        <translation>正在测量样本长度，内存估计可能还会变化。</translation>
    </message>
    <message>
        <source>Processor (CPU), no GPU</source>
        <translation>处理器（CPU），无 GPU</translation>
    </message>
    <message>
        <source>%1 of %2 GiB free</source>
        <translation>空闲 %1 / %2 GiB</translation>
    </message>
    <message>
        <source>Measured peak</source>
        <translation>实测峰值</translation>
    </message>
    <message>
        <source>%1 of %2 GiB</source>
        <translation>%1 / %2 GiB</translation>
    </message>
    <message>
        <source>A rough estimate until data is chosen.</source>
        <translation>选择数据之前只是粗略估计。</translation>
    </message>
    <message>
        <source>Planned for examples as long as the whole context. Check the plan to measure yours.</source>
        <translation>按占满整个上下文的样本估算。请检查计划，以实测你的数据。</translation>
    </message>
    <message>
        <source>Cancel the check</source>
        <translation>取消检查</translation>
    </message>
    <message>
        <source>Training one step on the longest examples…</source>
        <translation>正在用最长的样本训练一步…</translation>
    </message>
    <message>
        <source>not known yet</source>
        <translation>还不知道</translation>
    </message>
    <message>
        <source>%1 to %2</source>
        <translation>%1 至 %2</translation>
    </message>
    <message>
        <source>No run like this one has finished on this device. Check the plan to measure the time.</source>
        <translation>此设备上还没有完成过类似的训练。检查计划即可测量用时。</translation>
    </message>
    <message>
        <source>measured</source>
        <translation>实测</translation>
    </message>
    <message>
        <source>Steps</source>
        <translation>步数</translation>
    </message>
    <message>
        <source>Time</source>
        <translation>时间</translation>
    </message>
    <message>
        <source>Time of the steps</source>
        <translation>训练步用时</translation>
    </message>
    <message>
        <source>Written to disk</source>
        <translation>写入磁盘</translation>
    </message>
    <message>
        <source>saves %1 GiB</source>
        <translation>节省 %1 GiB</translation>
    </message>
    <message>
        <source>Use %1</source>
        <translation>使用%1</translation>
    </message>
    <message>
        <source>−%1 GiB</source>
        <translation>−%1 GiB</translation>
    </message>
    <message>
        <source>Examples longer than that: at least %1</source>
        <translation>比这更长的样本：至少 %1 个</translation>
    </message>
    <message>
        <source>about %1</source>
        <translation>大约 %1</translation>
    </message>
</context>
<context>
    <name>PresetBar</name>
    <message>
        <source>Balanced</source>
        <translation>均衡</translation>
    </message>
    <message>
        <source>Fast try</source>
        <translation>快速尝试</translation>
    </message>
    <message>
        <source>Best quality</source>
        <translation>最佳质量</translation>
    </message>
    <message>
        <source>LoRA on a 16-bit base</source>
        <translation>16 位基础模型上的 LoRA</translation>
    </message>
    <message>
        <source>LoRA on a 4-bit base</source>
        <translation>4 位基础模型上的 LoRA</translation>
    </message>
    <message>
        <source>Full fine-tuning in 16 bits</source>
        <translation>16 位全量微调</translation>
    </message>
    <message>
        <source>Full fine-tuning in 32 bits</source>
        <translation>32 位全量微调</translation>
    </message>
    <message>
        <source>LoRA on an 8-bit base</source>
        <translation>8 位基础模型上的 LoRA</translation>
    </message>
    <message>
        <source>LoRA</source>
        <translation>LoRA</translation>
    </message>
    <message>
        <source>LoRA on a 32-bit base</source>
        <translation>32 位基础模型上的 LoRA</translation>
    </message>
    <message>
        <source>%1 steps</source>
        <translation>%1 步</translation>
    </message>
    <message>
        <source>%1 epochs</source>
        <translation>%1 轮</translation>
    </message>
    <message>
        <source>rank %1</source>
        <translation>秩 %1</translation>
    </message>
    <message>
        <source>%1 tokens</source>
        <translation>%1 词元</translation>
    </message>
    <message>
        <source>learning rate %1</source>
        <translation>学习率 %1</translation>
    </message>
    <message>
        <source>Preset</source>
        <translation>预设</translation>
    </message>
    <message>
        <source>%1, %2</source>
        <translation>%1，%2</translation>
    </message>
    <message numerus="yes">
        <source>%n changed</source>
        <translation>
            <numerusform>已更改 %n 项</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>Problems</name>
    <message>
        <source>Keep</source>
        <translation>保留</translation>
    </message>
    <message>
        <source>Leave out</source>
        <translation>去掉</translation>
    </message>
    <message>
        <source>Repair</source>
        <translation>修复</translation>
    </message>
    <message>
        <source>Cut</source>
        <translation>截断</translation>
    </message>
    <message>
        <source>Split</source>
        <translation>拆分</translation>
    </message>
</context>
<context>
    <name>ProblemsPane</name>
    <message>
        <source>Check again</source>
        <translation>重新检查</translation>
    </message>
    <message>
        <source>Fix and save as…</source>
        <translation>修复并另存为…</translation>
    </message>
    <message>
        <source>Choose what is done about each problem. Your file stays as it is.</source>
        <translation>选择如何处理每个问题。原文件保持不变。</translation>
    </message>
    <message>
        <source>Progress of the check</source>
        <translation>检查进度</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Problems</source>
        <translation>问题</translation>
    </message>
    <message>
        <source>Problem</source>
        <translation>问题</translation>
    </message>
    <message>
        <source>Rows</source>
        <translation>行</translation>
    </message>
    <message>
        <source>What is done</source>
        <translation>处理方式</translation>
    </message>
    <message>
        <source>%1: %2</source>
        <translation>%1：%2</translation>
    </message>
    <message>
        <source>Say first which column is which.</source>
        <translation>请先指定各列的含义。</translation>
    </message>
    <message>
        <source>Checking the rows…</source>
        <translation>正在检查各行…</translation>
    </message>
    <message>
        <source>The check was canceled</source>
        <translation>检查已取消</translation>
    </message>
    <message>
        <source>%1, %2 per second</source>
        <translation>%1，每秒 %2 行</translation>
    </message>
    <message>
        <source>%1, about %2 left</source>
        <translation>%1，还需约 %2</translation>
    </message>
    <message>
        <source>Set up training</source>
        <translation>设置训练环境</translation>
    </message>
    <message>
        <source>The check uses its libraries.</source>
        <translation>检查要用到训练环境中的库。</translation>
    </message>
    <message>
        <source>Training is not set up yet</source>
        <translation>训练环境尚未设置</translation>
    </message>
    <message numerus="yes">
        <source>%Ln problem(s)</source>
        <translation>
            <numerusform>%Ln 个问题</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln row(s) checked</source>
        <translation>
            <numerusform>已检查 %Ln 行</numerusform>
        </translation>
    </message>
    <message>
        <source>Rows were changed after this check. Check again to see what is wrong with them now.</source>
        <translation>检查之后有行被修改。重新检查即可看到现在还有哪些问题。</translation>
    </message>
    <message>
        <source>%1 %2</source>
        <translation>%1 %2</translation>
    </message>
    <message>
        <source>%1  ·  languages: %2</source>
        <translation>%1  ·  语言：%2</translation>
    </message>
    <message>
        <source>No problems found</source>
        <translation>没有发现问题</translation>
    </message>
    <message>
        <source>and %1 more</source>
        <translation>还有 %1 行</translation>
    </message>
    <message>
        <source>What is done: %1</source>
        <translation>处理方式：%1</translation>
    </message>
    <message>
        <source>Fix and save as</source>
        <translation>修复并另存为</translation>
    </message>
</context>
<context>
    <name>Profile</name>
    <message>
        <source>PyTorch for CUDA 12.4</source>
        <translation>PyTorch（CUDA 12.4）</translation>
    </message>
    <message>
        <source>PyTorch for CUDA 12.8</source>
        <translation>PyTorch（CUDA 12.8）</translation>
    </message>
    <message>
        <source>PyTorch for the processor</source>
        <translation>PyTorch（处理器）</translation>
    </message>
</context>
<context>
    <name>QAbstractFileIconProvider</name>
    <message>
        <source>Folder</source>
        <translation>文件夹</translation>
    </message>
    <message>
        <source>File Folder</source>
        <translation>文件夹</translation>
    </message>
</context>
<context>
    <name>QFileDialog</name>
    <message>
        <source>&amp;Look in:</source>
        <translation>查找范围(&amp;L)：</translation>
    </message>
    <message>
        <source>Files of &amp;type:</source>
        <translation>文件类型(&amp;T)：</translation>
    </message>
</context>
<context>
    <name>QuestionDialog</name>
    <message>
        <source>Write questions from documents</source>
        <translation>根据文档生成问答</translation>
    </message>
    <message>
        <source>A model on this computer reads the text passage by passage and writes questions with answers. Nothing is sent anywhere. A model can be wrong, so you review each row afterwards.</source>
        <translation>这台电脑上的模型逐段阅读文本，写出问题和答案，不会向外发送任何内容。模型可能出错，因此之后要逐行审核。</translation>
    </message>
    <message>
        <source>Model</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>Choose an instruct model</source>
        <translation>选择指令模型</translation>
    </message>
    <message>
        <source>Larger models write better questions. One without a chat template can&apos;t do it.</source>
        <translation>模型越大，问题质量越好。没有对话模板的模型无法完成。</translation>
    </message>
    <message>
        <source>Too many make a small model repeat itself. 3 suits most documents.</source>
        <translation>数量过多时小模型会重复。多数文档适合 3 个。</translation>
    </message>
    <message>
        <source>Questions per passage</source>
        <translation>每段问题数</translation>
    </message>
    <message>
        <source>Save elsewhere…</source>
        <translation>保存到其他位置…</translation>
    </message>
    <message>
        <source>Passages that are done</source>
        <translation>已完成的段落</translation>
    </message>
    <message>
        <source>Stop</source>
        <translation>停止</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Review what is there</source>
        <translation>审核已有内容</translation>
    </message>
    <message>
        <source>Write questions</source>
        <translation>生成问答</translation>
    </message>
    <message>
        <source>Will be saved as %1</source>
        <translation>将保存为 %1</translation>
    </message>
    <message>
        <source>Continue</source>
        <translation>继续</translation>
    </message>
    <message numerus="yes">
        <source>%Ln question(s) so far, from %1 of %2 passages</source>
        <translation>
            <numerusform>已有 %Ln 个问题，来自 %2 段中的 %1 段</numerusform>
        </translation>
    </message>
    <message>
        <source>Loading the model…</source>
        <translation>正在加载模型…</translation>
    </message>
    <message>
        <source>%1 of %2 passages</source>
        <translation>第 %1 / %2 段</translation>
    </message>
    <message numerus="yes">
        <source>%Ln question(s)</source>
        <translation>
            <numerusform>%Ln 个问题</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln question(s) written. Passages: %1.</source>
        <translation>
            <numerusform>已生成 %Ln 个问题，来自 %1 段文字。</numerusform>
        </translation>
    </message>
    <message>
        <source>%1 passages per minute</source>
        <translation>每分钟 %1 段</translation>
    </message>
    <message>
        <source>Save the rows as</source>
        <translation>将行保存为</translation>
    </message>
    <message>
        <source>Reading the data…</source>
        <translation>正在读取数据…</translation>
    </message>
    <message>
        <source>about %1 left</source>
        <translation>还需约 %1</translation>
    </message>
    <message>
        <source>Stopping…</source>
        <translation>正在停止…</translation>
    </message>
    <message numerus="yes">
        <source>%Ln of them gave none.</source>
        <translation>
            <numerusform>其中 %Ln 段没有生成问题。</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>Rail</name>
    <message>
        <source>Train</source>
        <translation>训练</translation>
    </message>
    <message>
        <source>Data</source>
        <translation>数据</translation>
    </message>
    <message>
        <source>Models</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>Runs</source>
        <translation>运行</translation>
    </message>
    <message>
        <source>Run</source>
        <translation>运行</translation>
    </message>
    <message>
        <source>Blind vote</source>
        <translation>盲测投票</translation>
    </message>
    <message>
        <source>Environment</source>
        <translation>环境</translation>
    </message>
    <message>
        <source>Settings</source>
        <translation>设置</translation>
    </message>
    <message>
        <source>Pages</source>
        <translation>页面</translation>
    </message>
    <message>
        <source>Collapse the side bar</source>
        <translation>收起侧栏</translation>
    </message>
    <message>
        <source>Expand the side bar</source>
        <translation>展开侧栏</translation>
    </message>
    <message>
        <source>Try it</source>
        <translation>试用</translation>
    </message>
</context>
<context>
    <name>RateCard</name>
    <message>
        <source>Try it on a text of your own</source>
        <translation>用自己的文本试一试</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Check the steps</source>
        <translation>检查步骤</translation>
    </message>
    <message>
        <source>Problem</source>
        <translation>题目</translation>
    </message>
    <message>
        <source>Solution, a step on each line</source>
        <translation>解答，每行一个步骤</translation>
    </message>
    <message>
        <source>Predict the number</source>
        <translation>预测数值</translation>
    </message>
    <message>
        <source>Sort the text</source>
        <translation>给文本分类</translation>
    </message>
    <message>
        <source>Question, if your data has one</source>
        <translation>问题（数据中有问题时填写）</translation>
    </message>
    <message>
        <source>Text</source>
        <translation>文本</translation>
    </message>
    <message>
        <source>Score the answer</source>
        <translation>给回答打分</translation>
    </message>
    <message>
        <source>Question</source>
        <translation>问题</translation>
    </message>
    <message>
        <source>Answer</source>
        <translation>回答</translation>
    </message>
    <message>
        <source>Loading the model and reading the text…</source>
        <translation>正在加载模型并读取文本…</translation>
    </message>
</context>
<context>
    <name>ReviewBar</name>
    <message>
        <source>Keep</source>
        <translation>保留</translation>
    </message>
    <message>
        <source>Discard</source>
        <translation>丢弃</translation>
    </message>
    <message>
        <source>Next</source>
        <translation>下一行</translation>
    </message>
    <message>
        <source>The next row that nobody has reviewed: N in the list of rows</source>
        <translation>下一个尚未审核的行：在行列表中按 N</translation>
    </message>
    <message>
        <source>K in the list of rows</source>
        <translation>在行列表中按 K</translation>
    </message>
    <message>
        <source>D in the list of rows</source>
        <translation>在行列表中按 D</translation>
    </message>
    <message>
        <source>Passage that the row is about</source>
        <translation>该行对应的段落</translation>
    </message>
    <message>
        <source>Row %1 of %2</source>
        <translation>第 %1 / %2 行</translation>
    </message>
    <message>
        <source>Discarded</source>
        <translation>已丢弃</translation>
    </message>
    <message>
        <source>Kept</source>
        <translation>已保留</translation>
    </message>
    <message>
        <source>Not reviewed yet</source>
        <translation>尚未审核</translation>
    </message>
    <message>
        <source>Every row is reviewed. Save a copy to train on it.</source>
        <translation>所有行都已审核。请另存一份用于训练。</translation>
    </message>
    <message>
        <source>%1 of %2 reviewed</source>
        <translation>已审核 %1 / %2 行</translation>
    </message>
    <message>
        <source>page %1</source>
        <translation>第 %1 页</translation>
    </message>
    <message>
        <source>part %1</source>
        <translation>第 %1 部分</translation>
    </message>
    <message>
        <source>row %1</source>
        <translation>第 %1 行</translation>
    </message>
    <message>
        <source>line %1</source>
        <translation>第 %1 行</translation>
    </message>
</context>
<context>
    <name>RewardCard</name>
    <message>
        <source>training</source>
        <translation>训练</translation>
    </message>
    <message>
        <source>smoothed</source>
        <translation>平滑</translation>
    </message>
    <message>
        <source>held out</source>
        <translation>留出</translation>
    </message>
    <message>
        <source>lowest</source>
        <translation>最低</translation>
    </message>
    <message>
        <source>highest</source>
        <translation>最高</translation>
    </message>
</context>
<context>
    <name>RewardCharts</name>
    <message>
        <source>By how much the model rates the better answer above the worse one, on average. It should rise above 0.</source>
        <translation>模型对较好回答的评分平均比较差回答高出多少，应当升到 0 以上。</translation>
    </message>
    <message>
        <source>Reward margin</source>
        <translation>奖励差值</translation>
    </message>
    <message>
        <source>Share of pairs whose better answer the model rates higher. Guessing would be right in 50%.</source>
        <translation>模型给较好回答更高评分的偏好对所占的比例。随机猜测为 50%。</translation>
    </message>
    <message>
        <source>By how much the model rates good answers above bad ones, on average. It should rise above 0.</source>
        <translation>模型对好的回答的评价平均比差的回答高出多少。它应当升到 0 以上。</translation>
    </message>
    <message>
        <source>Share of answers on the right side: compared with answers in general, good ones have become likelier and bad ones less likely.</source>
        <translation>判断方向正确的回答占比：与一般回答相比，好的回答概率升高，差的回答概率降低。</translation>
    </message>
    <message>
        <source>Share of texts that the model sorts into the right class.</source>
        <translation>模型分到正确类别的文本所占比例。</translation>
    </message>
    <message>
        <source>Right class</source>
        <translation>分类正确</translation>
    </message>
    <message>
        <source>How well each class is found and kept apart, where every class counts the same. It falls behind the share of right ones when rare classes are missed.</source>
        <translation>各类别被找出和区分的程度，每个类别权重相同。漏掉少见类别时，它会低于正确比例。</translation>
    </message>
    <message>
        <source>By how much the model&apos;s confidence is off, on average. At 0 it is right as often as it says.</source>
        <translation>模型的置信度平均偏离多少。为 0 时，模型说有多大把握，就有多常正确。</translation>
    </message>
    <message>
        <source>Macro F1</source>
        <translation>宏平均 F1</translation>
    </message>
    <message>
        <source>Calibration error</source>
        <translation>校准误差</translation>
    </message>
    <message>
        <source>Share of steps that the model judges rightly.</source>
        <translation>模型判断正确的步骤所占的比例。</translation>
    </message>
    <message>
        <source>Right steps</source>
        <translation>判断正确的步骤</translation>
    </message>
    <message>
        <source>Share of tokens at which the model and the bigger one find the same token most likely.</source>
        <translation>模型与更大的模型认为同一词元最可能的词元所占的比例。</translation>
    </message>
    <message>
        <source>Agrees with the bigger model</source>
        <translation>与更大的模型一致</translation>
    </message>
    <message>
        <source>Reward accuracy</source>
        <translation>奖励准确率</translation>
    </message>
    <message>
        <source>How much likelier the model finds answers in general than the model before the run did, in nats. A rating counts from there. A steep rise means that it moves far away.</source>
        <translation>与运行之前的模型相比，模型总体上认为回答的概率高出多少，单位为奈特。评分以此为起点。急剧上升说明模型偏离得很远。</translation>
    </message>
    <message>
        <source>Distance from the start</source>
        <translation>与起点的距离</translation>
    </message>
    <message>
        <source>Mean, lowest and highest reward of the answers. In training the model chooses words at random, held out it takes the likeliest.</source>
        <translation>回答的平均、最低和最高奖励。训练时模型随机选词，在留出数据上选最可能的词。</translation>
    </message>
    <message>
        <source>Reward</source>
        <translation>奖励</translation>
    </message>
    <message>
        <source>Answer length</source>
        <translation>回答长度</translation>
    </message>
    <message>
        <source>Tokens</source>
        <translation>词元</translation>
    </message>
    <message>
        <source>Mean length of the answers. Growing without more reward is a warning sign.</source>
        <translation>回答的平均长度。变长而奖励没有增加是一个警示信号。</translation>
    </message>
    <message>
        <source>Cut answers</source>
        <translation>被截断的回答</translation>
    </message>
    <message>
        <source>Share of answers that reached the longest length and were cut there.</source>
        <translation>达到最大长度而被截断的回答所占比例。</translation>
    </message>
    <message>
        <source>Prompts that teach nothing</source>
        <translation>没有教学作用的提示词</translation>
    </message>
    <message>
        <source>Share of prompts whose answers all got the same reward. Nothing is learned from them.</source>
        <translation>所有回答奖励都相同的提示词所占比例。从中学不到任何东西。</translation>
    </message>
    <message>
        <source>Entropy</source>
        <translation>熵</translation>
    </message>
    <message>
        <source>How undecided the model is about its next word. Near 0 it always writes the same and tries no more.</source>
        <translation>模型对下一个词有多犹豫。接近 0 时它总是写同样的内容，不再尝试。</translation>
    </message>
    <message>
        <source>KL divergence per token. A sudden rise means that the model exploits the reward.</source>
        <translation>每个词元的 KL 散度。突然上升说明模型在钻奖励的空子。</translation>
    </message>
    <message>
        <source>Clipped tokens</source>
        <translation>被裁剪的词元</translation>
    </message>
    <message>
        <source>Share of tokens whose update was left out because it went too far.</source>
        <translation>因变化过大而未更新的词元所占比例。</translation>
    </message>
</context>
<context>
    <name>RewardsCard</name>
    <message>
        <source>Remove %1</source>
        <translation>移除 %1</translation>
    </message>
    <message>
        <source>Choose a Python file</source>
        <translation>选择 Python 文件</translation>
    </message>
    <message>
        <source>Reward %1: %2</source>
        <translation>奖励 %1：%2</translation>
    </message>
    <message>
        <source>Write an example…</source>
        <translation>写入示例…</translation>
    </message>
    <message>
        <source>Python (*.py)</source>
        <translation>Python (*.py)</translation>
    </message>
    <message>
        <source>JSON schema (*.json)</source>
        <translation>JSON 模式 (*.json)</translation>
    </message>
    <message>
        <source>Write an example of a reward</source>
        <translation>写入奖励示例</translation>
    </message>
    <message>
        <source>Reward %1, %2: %3</source>
        <translation>奖励 %1，%2：%3</translation>
    </message>
    <message>
        <source>Install them under Practice tasks.</source>
        <translation>可在“练习任务”中安装。</translation>
    </message>
    <message>
        <source>Rewards</source>
        <translation>奖励</translation>
    </message>
    <message>
        <source>Add a reward</source>
        <translation>添加奖励</translation>
    </message>
    <message>
        <source>Every answer gets these rewards, times their weight. Their sum is what the model raises.</source>
        <translation>每个回答得到以下各项奖励乘以权重之和，模型会努力提高它。</translation>
    </message>
    <message>
        <source>Reward</source>
        <translation>奖励</translation>
    </message>
    <message>
        <source>Weight</source>
        <translation>权重</translation>
    </message>
    <message>
        <source>Choose a JSON schema</source>
        <translation>选择 JSON 模式</translation>
    </message>
    <message>
        <source>Choose the folder of a reward model</source>
        <translation>选择奖励模型的文件夹</translation>
    </message>
    <message>
        <source>compared with the answer in the data, as suits it</source>
        <translation>以合适的方式与数据中的答案比对</translation>
    </message>
    <message>
        <source>what the task itself says of an answer to its problem</source>
        <translation>由任务自身评判对其题目的回答</translation>
    </message>
    <message>
        <source>the same text as the answer in the data</source>
        <translation>与数据中的答案文字相同</translation>
    </message>
    <message>
        <source>the same number as in the answer in the data</source>
        <translation>与数据中答案的数字相同</translation>
    </message>
    <message>
        <source>The file holds a function reward(prompt, answer, expected) that returns a number. More parameters get the columns of the row by their names.</source>
        <translation>文件中要有函数 reward(prompt, answer, expected)，返回一个数字。更多参数会按名称得到该行对应列的值。</translation>
    </message>
    <message>
        <source>the answer can be read as JSON</source>
        <translation>回答可以解析为 JSON</translation>
    </message>
    <message>
        <source>every call has a name and arguments</source>
        <translation>每个调用都有名称和参数</translation>
    </message>
</context>
<context>
    <name>RolloutsPane</name>
    <message>
        <source>What the model wrote to the first prompt of the newest step, best first. Answers with more reward than the others become more likely. Check that what is rewarded is what you want.</source>
        <translation>模型在最新一步对第一条提示词写出的回答，最好的在前。奖励高于其他的回答会变得更可能。请确认所奖励的正是您想要的。</translation>
    </message>
    <message>
        <source>No answers yet.</source>
        <translation>还没有回答。</translation>
    </message>
    <message>
        <source>Step %1</source>
        <translation>第 %1 步</translation>
    </message>
    <message>
        <source>Expected: %1</source>
        <translation>期望：%1</translation>
    </message>
    <message>
        <source>All answers got the same reward, so this prompt teaches nothing.</source>
        <translation>所有回答的奖励相同，因此这条提示词没有教学作用。</translation>
    </message>
    <message>
        <source>reward %1</source>
        <translation>奖励 %1</translation>
    </message>
    <message>
        <source>cut</source>
        <translation>已截断</translation>
    </message>
</context>
<context>
    <name>RowPane</name>
    <message>
        <source>Cell</source>
        <translation>单元格</translation>
    </message>
    <message>
        <source>Whole row</source>
        <translation>整行</translation>
    </message>
    <message>
        <source>What is edited</source>
        <translation>编辑对象</translation>
    </message>
    <message>
        <source>Text of the row</source>
        <translation>这一行的文本</translation>
    </message>
    <message>
        <source>Apply</source>
        <translation>应用</translation>
    </message>
    <message>
        <source>Delete row</source>
        <translation>删除此行</translation>
    </message>
    <message>
        <source>No row is chosen</source>
        <translation>未选择任何行</translation>
    </message>
    <message numerus="yes">
        <source>Delete %Ln row(s)</source>
        <translation>
            <numerusform>删除 %Ln 行</numerusform>
        </translation>
    </message>
    <message>
        <source>Restore row</source>
        <translation>恢复此行</translation>
    </message>
    <message numerus="yes">
        <source>Restore %Ln row(s)</source>
        <translation>
            <numerusform>恢复 %Ln 行</numerusform>
        </translation>
    </message>
    <message>
        <source>A row is an object such as {&quot;question&quot;: &quot;…&quot;}.</source>
        <translation>一行必须是对象，例如 {&quot;question&quot;: &quot;…&quot;}。</translation>
    </message>
    <message>
        <source>Not valid JSON in line %1, column %2.</source>
        <translation>第 %1 行第 %2 列不是有效的 JSON。</translation>
    </message>
    <message>
        <source>This row is too long to be edited here. This is its beginning.</source>
        <translation>这一行太长，无法在这里编辑。下面是它的开头。</translation>
    </message>
    <message>
        <source>Correct this before you leave the row: %1</source>
        <translation>请先改正再离开此行：%1</translation>
    </message>
    <message>
        <source>This row can&apos;t be read. Repair it here, or delete it.</source>
        <translation>无法读取这一行。请在这里修复，或将其删除。</translation>
    </message>
</context>
<context>
    <name>RowProblems</name>
    <message>
        <source>%1 What is done: %2</source>
        <translation>%1处理方式：%2</translation>
    </message>
    <message>
        <source>and %1 more</source>
        <translation>还有 %1 行</translation>
    </message>
</context>
<context>
    <name>RowTableModel</name>
    <message>
        <source>%1, %2</source>
        <translation>%1，%2</translation>
    </message>
    <message>
        <source>deleted</source>
        <translation>已删除</translation>
    </message>
    <message>
        <source>kept</source>
        <translation>已保留</translation>
    </message>
    <message>
        <source>edited</source>
        <translation>已修改</translation>
    </message>
    <message>
        <source>too long to be shown whole</source>
        <translation>太长，未完整显示</translation>
    </message>
    <message>
        <source>can&apos;t be read</source>
        <translation>无法读取</translation>
    </message>
</context>
<context>
    <name>RowWords</name>
    <message>
        <source>Page %1</source>
        <translation>第 %1 页</translation>
    </message>
    <message>
        <source>Part %1</source>
        <translation>第 %1 部分</translation>
    </message>
    <message>
        <source>Row %1</source>
        <translation>第 %1 行</translation>
    </message>
    <message>
        <source>Line %1</source>
        <translation>第 %1 行</translation>
    </message>
</context>
<context>
    <name>RunCard</name>
    <message>
        <source>Loss curve</source>
        <translation>损失曲线</translation>
    </message>
    <message>
        <source>Step</source>
        <translation>步</translation>
    </message>
    <message>
        <source>Evaluation loss</source>
        <translation>评估损失</translation>
    </message>
    <message>
        <source>Model</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>Data</source>
        <translation>数据</translation>
    </message>
    <message>
        <source>Duration</source>
        <translation>时长</translation>
    </message>
    <message>
        <source>When</source>
        <translation>时间</translation>
    </message>
    <message>
        <source>Size</source>
        <translation>大小</translation>
    </message>
    <message>
        <source>Open</source>
        <translation>打开</translation>
    </message>
    <message>
        <source>Resume</source>
        <translation>继续</translation>
    </message>
    <message>
        <source>Duplicate</source>
        <translation>复制运行</translation>
    </message>
    <message>
        <source>Export…</source>
        <translation>导出…</translation>
    </message>
    <message>
        <source>Held-out reward</source>
        <translation>留出奖励</translation>
    </message>
    <message>
        <source>Reward curve</source>
        <translation>奖励曲线</translation>
    </message>
</context>
<context>
    <name>RunLog</name>
    <message>
        <source>phase: %1</source>
        <translation>阶段：%1</translation>
    </message>
    <message>
        <source>memory: %1 planned, %2 taken by the largest micro-batch</source>
        <translation>显存：计划 %1，最大的微批次占用 %2</translation>
    </message>
    <message>
        <source>held-out reward %1 at step %2</source>
        <translation>第 %2 步的留出奖励 %1</translation>
    </message>
    <message>
        <source>not a number</source>
        <translation>不是数字</translation>
    </message>
    <message>
        <source>evaluation loss %1 at step %2</source>
        <translation>第 %2 步评估损失 %1</translation>
    </message>
    <message>
        <source>checkpoint %1 (%2)</source>
        <translation>检查点 %1（%2）</translation>
    </message>
    <message>
        <source>result: %1</source>
        <translation>结果：%1</translation>
    </message>
    <message>
        <source>paused: %1</source>
        <translation>已暂停：%1</translation>
    </message>
</context>
<context>
    <name>RunProgress</name>
    <message>
        <source>Progress</source>
        <translation>进度</translation>
    </message>
    <message>
        <source>Step %1 of %2 · %3%</source>
        <translation>第 %1 步，共 %2 步 · %3%</translation>
    </message>
    <message>
        <source>%1 of about %2 rows</source>
        <translation>第 %1 行，共约 %2 行</translation>
    </message>
    <message>
        <source>%1 rows</source>
        <translation>%1 行</translation>
    </message>
    <message>
        <source>%1 rows/s</source>
        <translation>%1 行/秒</translation>
    </message>
    <message>
        <source>%1 left</source>
        <translation>还剩 %1</translation>
    </message>
</context>
<context>
    <name>RunState</name>
    <message>
        <source>Waiting</source>
        <translation>等待中</translation>
    </message>
    <message>
        <source>Preparing</source>
        <translation>准备中</translation>
    </message>
    <message>
        <source>Running</source>
        <translation>进行中</translation>
    </message>
    <message>
        <source>Stopping</source>
        <translation>正在停止</translation>
    </message>
    <message>
        <source>Saving</source>
        <translation>正在保存</translation>
    </message>
    <message>
        <source>Finished</source>
        <translation>已完成</translation>
    </message>
    <message>
        <source>Stopped</source>
        <translation>已停止</translation>
    </message>
    <message>
        <source>Failed</source>
        <translation>失败</translation>
    </message>
    <message>
        <source>Interrupted</source>
        <translation>已中断</translation>
    </message>
    <message>
        <source>Damaged</source>
        <translation>已损坏</translation>
    </message>
    <message>
        <source>GPU %1</source>
        <translation>GPU %1</translation>
    </message>
    <message>
        <source>the CPU</source>
        <translation>CPU</translation>
    </message>
    <message>
        <source>Waiting for %1</source>
        <translation>正在等待 %1</translation>
    </message>
    <message>
        <source>Waiting for %1, in use by “%2”</source>
        <translation>正在等待 %1，“%2”正在使用它</translation>
    </message>
    <message>
        <source>%1 · number %2 in the queue</source>
        <translation>%1 · 排在第 %2 位</translation>
    </message>
    <message>
        <source>Paused: disk full</source>
        <translation>已暂停：磁盘已满</translation>
    </message>
    <message>
        <source>Can’t save</source>
        <translation>无法保存</translation>
    </message>
    <message>
        <source>Paused</source>
        <translation>已暂停</translation>
    </message>
</context>
<context>
    <name>RunTable</name>
    <message>
        <source>reward %1</source>
        <translation>奖励 %1</translation>
    </message>
</context>
<context>
    <name>RunTableModel</name>
    <message>
        <source>Name</source>
        <translation>名称</translation>
    </message>
    <message>
        <source>State</source>
        <translation>状态</translation>
    </message>
    <message>
        <source>Loss</source>
        <translation>损失</translation>
    </message>
    <message>
        <source>Evaluation loss</source>
        <translation>评估损失</translation>
    </message>
    <message>
        <source>Model</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>Data</source>
        <translation>数据</translation>
    </message>
    <message>
        <source>Duration</source>
        <translation>时长</translation>
    </message>
    <message>
        <source>When</source>
        <translation>时间</translation>
    </message>
    <message>
        <source>Size</source>
        <translation>大小</translation>
    </message>
    <message>
        <source>The evaluation loss at the end of the run, or its held-out reward</source>
        <translation>运行结束时的评估损失，或留出奖励</translation>
    </message>
</context>
<context>
    <name>RunWords</name>
    <message>
        <source>best %1</source>
        <translation>最佳 %1</translation>
    </message>
</context>
<context>
    <name>RunsPage</name>
    <message>
        <source>Runs</source>
        <translation>运行</translation>
    </message>
    <message>
        <source>New run</source>
        <translation>新建运行</translation>
    </message>
    <message>
        <source>No runs yet</source>
        <translation>还没有运行</translation>
    </message>
    <message>
        <source>A run trains an adapter on your data. It appears here and stays, also when the window is closed.</source>
        <translation>一次运行用你的数据训练一个适配器。它会出现在这里，关闭窗口后也会保留。</translation>
    </message>
    <message>
        <source>Start your first run</source>
        <translation>开始第一个运行</translation>
    </message>
    <message>
        <source>Try the sample</source>
        <translation>试试示例</translation>
    </message>
    <message>
        <source>Reading the list of runs…</source>
        <translation>正在读取运行列表…</translation>
    </message>
    <message>
        <source>Filter by name, model or data</source>
        <translation>按名称、模型或数据筛选</translation>
    </message>
    <message>
        <source>Filter runs</source>
        <translation>筛选运行</translation>
    </message>
    <message>
        <source>All</source>
        <translation>全部</translation>
    </message>
    <message>
        <source>Running</source>
        <translation>进行中</translation>
    </message>
    <message>
        <source>Finished</source>
        <translation>已完成</translation>
    </message>
    <message>
        <source>Stopped</source>
        <translation>已停止</translation>
    </message>
    <message>
        <source>Failed</source>
        <translation>失败</translation>
    </message>
    <message>
        <source>State</source>
        <translation>状态</translation>
    </message>
    <message>
        <source>No run matches</source>
        <translation>没有匹配的运行</translation>
    </message>
    <message>
        <source>No run has these words and this state.</source>
        <translation>没有运行同时符合这些文字和状态。</translation>
    </message>
    <message>
        <source>Show all runs</source>
        <translation>显示所有运行</translation>
    </message>
    <message>
        <source>Compare</source>
        <translation>比较</translation>
    </message>
    <message>
        <source>Export CSV…</source>
        <translation>导出 CSV…</translation>
    </message>
    <message>
        <source>Delete…</source>
        <translation>删除…</translation>
    </message>
    <message>
        <source>Trash…</source>
        <translation>回收站…</translation>
    </message>
    <message>
        <source>Export CSV</source>
        <translation>导出 CSV</translation>
    </message>
    <message>
        <source>Written to %1</source>
        <translation>已写入 %1</translation>
    </message>
    <message>
        <source>%1 running</source>
        <translation>%1 个正在运行</translation>
    </message>
    <message>
        <source>%1 waiting</source>
        <translation>%1 个等待中</translation>
    </message>
    <message>
        <source>Moved to the trash, from where runs can be restored.</source>
        <translation>已移到回收站，可从那里恢复。</translation>
    </message>
    <message numerus="yes">
        <source>%n run(s)</source>
        <translation>
            <numerusform>%n 个运行</numerusform>
        </translation>
    </message>
    <message>
        <source>Select two to six runs to compare them</source>
        <translation>请选择 2 到 6 次运行进行对比</translation>
    </message>
    <message>
        <source>Stop the run first, then you can delete it</source>
        <translation>请先停止运行，再删除</translation>
    </message>
    <message numerus="yes">
        <source>%n selected</source>
        <translation>
            <numerusform>已选 %n 个</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>SamplesList</name>
    <message>
        <source>Right</source>
        <translation>正确</translation>
    </message>
    <message>
        <source>Wrong</source>
        <translation>错误</translation>
    </message>
    <message>
        <source>The setting Sample length decides how long it may be.</source>
        <translation>它最长多少由设置“示例长度”决定。</translation>
    </message>
    <message>
        <source>An answer to a held-out row is cut somewhat behind the length of the expected one.</source>
        <translation>对留出行的回答，按略长于期望回答的长度截断。</translation>
    </message>
    <message>
        <source>No samples yet.</source>
        <translation>还没有生成示例。</translation>
    </message>
    <message>
        <source>This run has no samples.</source>
        <translation>这次运行没有生成示例。</translation>
    </message>
    <message>
        <source>step %1</source>
        <translation>第 %1 步</translation>
    </message>
    <message>
        <source>before training</source>
        <translation>训练前</translation>
    </message>
    <message>
        <source>Expected: %1</source>
        <translation>预期：%1</translation>
    </message>
    <message>
        <source>cut at %1 tokens</source>
        <translation>在 %1 个词元处截断</translation>
    </message>
</context>
<context>
    <name>SamplesPane</name>
    <message>
        <source>Prompt</source>
        <translation>提示词</translation>
    </message>
    <message>
        <source>Ask the model being trained</source>
        <translation>向训练中的模型提问</translation>
    </message>
    <message>
        <source>Ask</source>
        <translation>提问</translation>
    </message>
    <message>
        <source>Samples of which step</source>
        <translation>显示哪一步的样例</translation>
    </message>
    <message>
        <source>Held-out rows are asked before and after training, and in between while there is time for it.</source>
        <translation>留出的数据行在训练前后会被提问，训练中有时间时也会提问。</translation>
    </message>
    <message>
        <source>All steps</source>
        <translation>所有步</translation>
    </message>
    <message>
        <source>Before training</source>
        <translation>训练前</translation>
    </message>
    <message>
        <source>Step %1</source>
        <translation>第 %1 步</translation>
    </message>
    <message>
        <source>Answered at step %1.</source>
        <translation>已在第 %1 步回答。</translation>
    </message>
    <message>
        <source>There is no answer. %1</source>
        <translation>没有得到回答。%1</translation>
    </message>
    <message>
        <source>The run ended before the model answered.</source>
        <translation>模型还没回答，运行就结束了。</translation>
    </message>
    <message>
        <source>The model answers after the current step…</source>
        <translation>当前这一步完成后，模型就会回答…</translation>
    </message>
    <message>
        <source>The model answers once training has started…</source>
        <translation>训练开始后，模型就会回答…</translation>
    </message>
</context>
<context>
    <name>Saving</name>
    <message>
        <source>The file is still being read. Save when all rows are there.</source>
        <translation>文件仍在读取。请等所有行读完后再保存。</translation>
    </message>
    <message>
        <source>Only reviewed rows are saved as a file of their own. This file stays as it is.</source>
        <translation>仅将已审核的行另存为一个文件，此文件保持不变。</translation>
    </message>
    <message>
        <source>Your latest changes are not in the copy. Save again to keep them.</source>
        <translation>副本不包含最近的修改。请再次保存以保留它们。</translation>
    </message>
    <message numerus="yes">
        <source>%Ln row(s)</source>
        <translation>
            <numerusform>%Ln 行</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln of them edited</source>
        <translation>
            <numerusform>其中 %Ln 行已编辑</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln deleted by hand</source>
        <translation>
            <numerusform>手动删除 %Ln 行</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln left out</source>
        <translation>
            <numerusform>去掉 %Ln 行</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln of them repaired</source>
        <translation>
            <numerusform>其中 %Ln 行已修复</numerusform>
        </translation>
    </message>
    <message>
        <source>Another file is being saved. Wait until it is whole.</source>
        <translation>正在保存另一个文件，请等它完成。</translation>
    </message>
</context>
<context>
    <name>SettingText</name>
    <message>
        <source>on</source>
        <translation>开</translation>
    </message>
    <message>
        <source>off</source>
        <translation>关</translation>
    </message>
    <message>
        <source>Must be a whole number, not “%1”</source>
        <translation>必须是整数，不能是“%1”</translation>
    </message>
    <message>
        <source>Must be a number such as %1, not “%2”</source>
        <translation>必须是数字，例如 %1，而不是“%2”</translation>
    </message>
    <message>
        <source>Must be a finite number</source>
        <translation>必须是有限的数</translation>
    </message>
    <message>
        <source>Must be above %1</source>
        <translation>必须大于 %1</translation>
    </message>
    <message>
        <source>Must be at least %1</source>
        <translation>不能小于 %1</translation>
    </message>
    <message>
        <source>Must be at most %1</source>
        <translation>不能大于 %1</translation>
    </message>
    <message>
        <source>Must be one of %1</source>
        <translation>必须是其中之一：%1</translation>
    </message>
    <message>
        <source>Name at least one module, or %1</source>
        <translation>请至少填一个模块，或 %1</translation>
    </message>
    <message>
        <source>Write it as: role = column, role = column</source>
        <translation>请写成：角色 = 列，角色 = 列</translation>
    </message>
    <message>
        <source>One of: %1</source>
        <translation>可选：%1</translation>
    </message>
    <message>
        <source>Range: above %1</source>
        <translation>范围：大于 %1</translation>
    </message>
    <message>
        <source>Range: %1 or more</source>
        <translation>范围：%1 或以上</translation>
    </message>
    <message>
        <source>Range: above %1, up to %2</source>
        <translation>范围：大于 %1，最多 %2</translation>
    </message>
    <message>
        <source>Range: %1 to %2</source>
        <translation>范围：%1 到 %2</translation>
    </message>
</context>
<context>
    <name>SettingsDrawer</name>
    <message>
        <source>Answer settings</source>
        <translation>回答设置</translation>
    </message>
    <message>
        <source>System prompt</source>
        <translation>系统提示词</translation>
    </message>
    <message>
        <source>Said to the model before every conversation. When empty, its chat template may say something of its own.</source>
        <translation>在每次对话之前告诉模型的话。留空时，模型的对话模板可能会加入自带的内容。</translation>
    </message>
    <message>
        <source>Reset sampling</source>
        <translation>重置采样设置</translation>
    </message>
    <message>
        <source>Temperature</source>
        <translation>温度</translation>
    </message>
    <message>
        <source>0 always takes the most likely token. 0.7 varies. Above 1, answers get wild.</source>
        <translation>0 始终选择最可能的词元，0.7 会有变化，超过 1 时回答会变得散乱。</translation>
    </message>
    <message>
        <source>Longest answer</source>
        <translation>最长回答</translation>
    </message>
    <message>
        <source>tokens</source>
        <translation>个词元</translation>
    </message>
    <message>
        <source>Top p</source>
        <translation>Top p</translation>
    </message>
    <message>
        <source>Only the likeliest tokens that together have this probability. 1 for all.</source>
        <translation>只在概率之和达到此值的最可能词元中选择。1 表示全部。</translation>
    </message>
    <message>
        <source>Top k</source>
        <translation>Top k</translation>
    </message>
    <message>
        <source>Only so many of the likeliest tokens. 0 for all.</source>
        <translation>只在这么多个最可能的词元中选择。0 表示全部。</translation>
    </message>
    <message>
        <source>Min p</source>
        <translation>Min p</translation>
    </message>
    <message>
        <source>Only tokens with this share of the likeliest one’s probability. 0 for all.</source>
        <translation>只选择概率不低于最可能词元此比例的词元。0 表示全部。</translation>
    </message>
    <message>
        <source>Repetition penalty</source>
        <translation>重复惩罚</translation>
    </message>
    <message>
        <source>Above 1, tokens that occurred get less likely. 1 for none.</source>
        <translation>大于 1 时，已出现的词元更不容易再出现。1 表示不惩罚。</translation>
    </message>
    <message>
        <source>Seed</source>
        <translation>随机种子</translation>
    </message>
    <message>
        <source>The same seed gives the same answer.</source>
        <translation>相同的种子得到相同的回答。</translation>
    </message>
    <message>
        <source>Questions reach the model through its chat template.</source>
        <translation>问题会通过模型的对话模板传给模型。</translation>
    </message>
    <message>
        <source>This model has no chat template. It continues your text as it stands, without the system prompt.</source>
        <translation>此模型没有对话模板，会直接续写您输入的文字，不使用系统提示词。</translation>
    </message>
</context>
<context>
    <name>SettingsList</name>
    <message>
        <source>Model</source>
        <translation>模型</translation>
    </message>
    <message>
        <source>Data</source>
        <translation>数据</translation>
    </message>
    <message>
        <source>Objective</source>
        <translation>训练目标</translation>
    </message>
    <message>
        <source>Rollouts</source>
        <translation>采样回答</translation>
    </message>
    <message>
        <source>Bigger model</source>
        <translation>更大的模型</translation>
    </message>
    <message>
        <source>Adapter</source>
        <translation>适配器</translation>
    </message>
    <message>
        <source>Quantization</source>
        <translation>量化</translation>
    </message>
    <message>
        <source>Optimizer</source>
        <translation>优化器</translation>
    </message>
    <message>
        <source>Schedule</source>
        <translation>日程</translation>
    </message>
    <message>
        <source>Evaluation</source>
        <translation>评估</translation>
    </message>
    <message>
        <source>Saving</source>
        <translation>保存</translation>
    </message>
    <message>
        <source>Hardware</source>
        <translation>硬件</translation>
    </message>
    <message>
        <source>Reset %1</source>
        <translation>重置 %1</translation>
    </message>
    <message>
        <source>About %1</source>
        <translation>关于 %1</translation>
    </message>
    <message>
        <source>empty</source>
        <translation>空</translation>
    </message>
    <message>
        <source>set by the adapter to start from</source>
        <translation>由起始适配器决定</translation>
    </message>
    <message>
        <source>detected</source>
        <translation>已识别</translation>
    </message>
    <message>
        <source>comes with the data, was %1</source>
        <translation>随数据设定，原为 %1</translation>
    </message>
    <message>
        <source>changed, was %1</source>
        <translation>已更改，原为 %1</translation>
    </message>
    <message>
        <source>detected automatically</source>
        <translation>自动识别</translation>
    </message>
    <message>
        <source>default</source>
        <translation>默认</translation>
    </message>
    <message>
        <source>Back to %1</source>
        <translation>恢复为 %1</translation>
    </message>
    <message>
        <source>All settings</source>
        <translation>全部设置</translation>
    </message>
    <message>
        <source>Reset all</source>
        <translation>全部重置</translation>
    </message>
    <message>
        <source>Find a setting</source>
        <translation>查找设置</translation>
    </message>
    <message>
        <source>No setting matches.</source>
        <translation>没有匹配的设置。</translation>
    </message>
    <message>
        <source>Hide</source>
        <translation>收起</translation>
    </message>
    <message>
        <source>Show all %1</source>
        <translation>显示全部 %1 项</translation>
    </message>
    <message>
        <source>All settings: %1</source>
        <translation>全部设置：%1</translation>
    </message>
    <message numerus="yes">
        <source>%n changed</source>
        <translation>
            <numerusform>已更改 %n 项</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>SettingsPage</name>
    <message>
        <source>Settings</source>
        <translation>设置</translation>
    </message>
    <message>
        <source>General</source>
        <translation>常规</translation>
    </message>
    <message>
        <source>Same as the system (%1)</source>
        <translation>跟随系统（%1）</translation>
    </message>
    <message>
        <source>Same as the system</source>
        <translation>跟随系统</translation>
    </message>
    <message>
        <source>Light</source>
        <translation>浅色</translation>
    </message>
    <message>
        <source>Dark</source>
        <translation>深色</translation>
    </message>
    <message>
        <source>High contrast</source>
        <translation>高对比度</translation>
    </message>
    <message>
        <source>Runs</source>
        <translation>运行</translation>
    </message>
    <message>
        <source>Network</source>
        <translation>网络</translation>
    </message>
    <message>
        <source>Enter an address such as https://mirror.example/simple or http://proxy.example:8080.</source>
        <translation>请输入地址，例如 https://mirror.example/simple 或 http://proxy.example:8080。</translation>
    </message>
    <message>
        <source>Enter the full path of a folder.</source>
        <translation>请输入文件夹的完整路径。</translation>
    </message>
    <message>
        <source>To use another folder, close Tunesmith, move this one, and start with the variable %1 set to it.</source>
        <translation>如需使用其他文件夹，请关闭 Tunesmith，移动此文件夹，然后将变量 %1 设为新位置再启动。</translation>
    </message>
    <message>
        <source>Free software under the Apache License 2.0. No account, no telemetry, no open ports.</source>
        <translation>Apache 2.0 许可的自由软件。无需账号，没有遥测，不开放端口。</translation>
    </message>
    <message>
        <source>All settings were reset to their defaults.</source>
        <translation>所有设置都已恢复默认值。</translation>
    </message>
    <message>
        <source>Storage</source>
        <translation>存储</translation>
    </message>
    <message>
        <source>Reset all settings</source>
        <translation>重置所有设置</translation>
    </message>
    <message>
        <source>Runs, models and environments</source>
        <translation>运行、模型和环境</translation>
    </message>
    <message>
        <source>Open folder</source>
        <translation>打开文件夹</translation>
    </message>
    <message>
        <source>Keyboard</source>
        <translation>键盘</translation>
    </message>
    <message>
        <source>About</source>
        <translation>关于</translation>
    </message>
    <message>
        <source>Tunesmith %1</source>
        <translation>Tunesmith %1</translation>
    </message>
</context>
<context>
    <name>SettingsPane</name>
    <message>
        <source>The settings of this run can’t be read. %1</source>
        <translation>无法读取这次运行的设置。%1</translation>
    </message>
</context>
<context>
    <name>SettingsUsedTable</name>
    <message>
        <source>Setting</source>
        <translation>设置</translation>
    </message>
    <message>
        <source>Value</source>
        <translation>值</translation>
    </message>
    <message>
        <source>Default</source>
        <translation>默认值</translation>
    </message>
    <message>
        <source>Rewards</source>
        <translation>奖励</translation>
    </message>
    <message>
        <source>changed, default is %1</source>
        <translation>已更改，默认为 %1</translation>
    </message>
    <message>
        <source>changed</source>
        <translation>已更改</translation>
    </message>
</context>
<context>
    <name>Setup</name>
    <message>
        <source>Looking at this computer</source>
        <translation>正在查看这台电脑</translation>
    </message>
    <message>
        <source>Checking</source>
        <translation>正在检查</translation>
    </message>
    <message>
        <source>Checking every file</source>
        <translation>正在检查每个文件</translation>
    </message>
    <message>
        <source>Planning the installation</source>
        <translation>正在计划安装</translation>
    </message>
    <message>
        <source>Installing the training environment</source>
        <translation>正在安装训练环境</translation>
    </message>
    <message>
        <source>Repairing</source>
        <translation>正在修复</translation>
    </message>
    <message>
        <source>Rolling back to the previous environment</source>
        <translation>正在回退到上一个环境</translation>
    </message>
    <message>
        <source>Canceling…</source>
        <translation>正在取消…</translation>
    </message>
    <message>
        <source>Setting up the Windows Subsystem for Linux</source>
        <translation>正在安装适用于 Linux 的 Windows 子系统</translation>
    </message>
    <message>
        <source>Canceled. Downloads are kept, and the environment in use did not change.</source>
        <translation>已取消。已下载的内容会保留，正在使用的环境没有改动。</translation>
    </message>
    <message>
        <source>WSL is ready: choose it under Hardware for a run.</source>
        <translation>WSL 已就绪：可在运行的“硬件”中选择它。</translation>
    </message>
    <message>
        <source>It did not succeed.</source>
        <translation>没有成功。</translation>
    </message>
    <message>
        <source>Installed and tested on this computer.</source>
        <translation>已安装，并在此电脑上测试通过。</translation>
    </message>
    <message>
        <source>Repaired and checked.</source>
        <translation>已修复并检查。</translation>
    </message>
    <message>
        <source>The previous environment is in use again.</source>
        <translation>已重新使用上一个环境。</translation>
    </message>
    <message>
        <source>Working…</source>
        <translation>进行中…</translation>
    </message>
    <message>
        <source>%1 MB/s</source>
        <translation>%1 MB/s</translation>
    </message>
    <message>
        <source>%1 left</source>
        <translation>还剩 %1</translation>
    </message>
</context>
<context>
    <name>SetupFlow</name>
    <message>
        <source>complete</source>
        <translation>已完成</translation>
    </message>
    <message>
        <source>%1 on the drive</source>
        <translation>占用磁盘 %1</translation>
    </message>
    <message>
        <source>%1 to download, %2 on the drive</source>
        <translation>下载 %1，占用磁盘 %2</translation>
    </message>
    <message>
        <source>OK</source>
        <translation>正常</translation>
    </message>
    <message>
        <source>Failed</source>
        <translation>失败</translation>
    </message>
    <message>
        <source>Wait until the folder is ready.</source>
        <translation>请等待文件夹准备就绪。</translation>
    </message>
    <message>
        <source>This computer</source>
        <translation>这台电脑</translation>
    </message>
    <message>
        <source>Where to keep things</source>
        <translation>存放位置</translation>
    </message>
    <message>
        <source>Training environment</source>
        <translation>训练环境</translation>
    </message>
    <message>
        <source>Try it</source>
        <translation>试一试</translation>
    </message>
    <message>
        <source>Skipped for now</source>
        <translation>暂时跳过</translation>
    </message>
    <message>
        <source>Skipped</source>
        <translation>已跳过</translation>
    </message>
    <message>
        <source>Not installed</source>
        <translation>未安装</translation>
    </message>
    <message>
        <source>Waiting</source>
        <translation>等待中</translation>
    </message>
    <message>
        <source>Optional</source>
        <translation>可选</translation>
    </message>
    <message>
        <source>Working</source>
        <translation>进行中</translation>
    </message>
    <message>
        <source>Warning</source>
        <translation>警告</translation>
    </message>
    <message>
        <source>Unknown</source>
        <translation>未知</translation>
    </message>
    <message>
        <source>Getting the folder ready…</source>
        <translation>正在准备文件夹…</translation>
    </message>
    <message>
        <source>Looking at the drive…</source>
        <translation>正在查看磁盘…</translation>
    </message>
    <message>
        <source>%1 free</source>
        <translation>剩余 %1</translation>
    </message>
    <message>
        <source>Planning…</source>
        <translation>正在计划…</translation>
    </message>
    <message>
        <source>Everything is already installed. Nothing to download.</source>
        <translation>一切都已安装，无需下载。</translation>
    </message>
    <message>
        <source>All %1 checks passed</source>
        <translation>%1 项检查全部通过</translation>
    </message>
    <message>
        <source>%1 of %2 checks passed</source>
        <translation>%2 项检查中有 %1 项通过</translation>
    </message>
    <message>
        <source>Unknown, no response in time</source>
        <translation>未知，没有及时响应</translation>
    </message>
    <message>
        <source>No NVIDIA GPU found. Training will use the processor, which is slow.</source>
        <translation>未找到 NVIDIA GPU。将使用处理器训练，速度较慢。</translation>
    </message>
    <message>
        <source>Other GPU</source>
        <translation>其他 GPU</translation>
    </message>
    <message>
        <source>supports CUDA %1</source>
        <translation>支持 CUDA %1</translation>
    </message>
    <message>
        <source>%1 to download</source>
        <translation>下载 %1</translation>
    </message>
    <message>
        <source>needs %1 while installing, plus room for models</source>
        <translation>安装时需要 %1，另需为模型预留空间</translation>
    </message>
    <message>
        <source>%1 on the drive while installing</source>
        <translation>安装时占用磁盘 %1</translation>
    </message>
    <message>
        <source>about %1</source>
        <translation>大约 %1</translation>
    </message>
    <message>
        <source>%1 of %2 checks done</source>
        <translation>已完成 %1/%2 项检查</translation>
    </message>
    <message>
        <source>%1 free at %2</source>
        <translation>%2 处剩余 %1</translation>
    </message>
    <message>
        <source>Disk</source>
        <translation>磁盘</translation>
    </message>
    <message>
        <source>No NVIDIA GPU</source>
        <translation>没有 NVIDIA GPU</translation>
    </message>
    <message>
        <source>GPU</source>
        <translation>GPU</translation>
    </message>
    <message>
        <source>Driver</source>
        <translation>驱动</translation>
    </message>
    <message>
        <source>Memory</source>
        <translation>内存</translation>
    </message>
    <message>
        <source>%1 threads</source>
        <translation>%1 个线程</translation>
    </message>
    <message>
        <source>Processor</source>
        <translation>处理器</translation>
    </message>
    <message>
        <source>System</source>
        <translation>系统</translation>
    </message>
</context>
<context>
    <name>SetupProgress</name>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Progress</source>
        <translation>进度</translation>
    </message>
    <message>
        <source>Show details</source>
        <translation>显示详细信息</translation>
    </message>
    <message>
        <source>%1: %2</source>
        <translation>%1：%2</translation>
    </message>
    <message>
        <source>Hide details</source>
        <translation>隐藏详细信息</translation>
    </message>
</context>
<context>
    <name>SetupService</name>
    <message>
        <source>Checking this computer</source>
        <translation>正在检查这台电脑</translation>
    </message>
</context>
<context>
    <name>SetupWizard</name>
    <message>
        <source>Set up Tunesmith</source>
        <translation>设置 Tunesmith</translation>
    </message>
    <message>
        <source>Four steps to the first run. Each can be skipped and done later on the Environment page.</source>
        <translation>四步即可开始第一次运行。每一步都可以跳过，以后在“环境”页面再做。</translation>
    </message>
    <message>
        <source>Skip for now</source>
        <translation>暂时跳过</translation>
    </message>
    <message>
        <source>Back</source>
        <translation>上一步</translation>
    </message>
    <message>
        <source>Next</source>
        <translation>下一步</translation>
    </message>
    <message>
        <source>Finish</source>
        <translation>完成</translation>
    </message>
    <message>
        <source>Where to keep things</source>
        <translation>存放位置</translation>
    </message>
</context>
<context>
    <name>SheetChoice</name>
    <message>
        <source>Sheet</source>
        <translation>工作表</translation>
    </message>
    <message>
        <source>Not read: %1</source>
        <translation>未读取：%1</translation>
    </message>
</context>
<context>
    <name>Shelf</name>
    <message>
        <source>GGUF file</source>
        <translation>GGUF 文件</translation>
    </message>
    <message>
        <source>GGUF</source>
        <translation>GGUF</translation>
    </message>
    <message>
        <source>Can&apos;t be trained. %1</source>
        <translation>无法训练。%1</translation>
    </message>
    <message>
        <source>Kept by the Hugging Face cache</source>
        <translation>由 Hugging Face 缓存保存</translation>
    </message>
    <message>
        <source>Kept by LM Studio</source>
        <translation>由 LM Studio 保存</translation>
    </message>
    <message>
        <source>Kept by Ollama</source>
        <translation>由 Ollama 保存</translation>
    </message>
    <message>
        <source>Used by %1</source>
        <translation>用于 %1</translation>
    </message>
    <message>
        <source>Used by %1 and %2 more</source>
        <translation>用于 %1 以及另外 %2 个</translation>
    </message>
</context>
<context>
    <name>ShellBanners</name>
    <message>
        <source>The run %1 was interrupted at step %2</source>
        <translation>运行 %1 在第 %2 步中断了</translation>
    </message>
    <message>
        <source>Open</source>
        <translation>打开</translation>
    </message>
    <message numerus="yes">
        <source>%n run(s) were interrupted</source>
        <translation>
            <numerusform>有 %n 个运行中断了</numerusform>
        </translation>
    </message>
    <message>
        <source>Show runs</source>
        <translation>查看运行</translation>
    </message>
    <message>
        <source>Open it to resume, or to see what happened.</source>
        <translation>打开它可以继续，或查看发生了什么。</translation>
    </message>
</context>
<context>
    <name>Shortcuts</name>
    <message>
        <source>Open the run %1</source>
        <translation>打开运行 %1</translation>
    </message>
    <message>
        <source>Go to %1</source>
        <translation>转到“%1”</translation>
    </message>
    <message>
        <source>Set up Tunesmith…</source>
        <translation>设置 Tunesmith…</translation>
    </message>
    <message>
        <source>New run</source>
        <translation>新建运行</translation>
    </message>
    <message>
        <source>Start the run</source>
        <translation>开始运行</translation>
    </message>
    <message>
        <source>Stop the run…</source>
        <translation>停止运行…</translation>
    </message>
    <message>
        <source>Find a command</source>
        <translation>查找命令</translation>
    </message>
    <message>
        <source>Find on this page</source>
        <translation>在本页查找</translation>
    </message>
    <message>
        <source>Show the log</source>
        <translation>显示日志</translation>
    </message>
    <message>
        <source>Show what is running</source>
        <translation>显示正在进行的运行</translation>
    </message>
    <message>
        <source>Copy diagnostics</source>
        <translation>复制诊断信息</translation>
    </message>
    <message>
        <source>Enlarge the chart</source>
        <translation>放大图表</translation>
    </message>
    <message>
        <source>Explain the focused setting</source>
        <translation>解释当前设置</translation>
    </message>
    <message>
        <source>Collapse or expand the side bar</source>
        <translation>收起或展开侧栏</translation>
    </message>
</context>
<context>
    <name>SourcesCard</name>
    <message>
        <source>Remove %1</source>
        <translation>移除 %1</translation>
    </message>
    <message>
        <source>all</source>
        <translation>全部</translation>
    </message>
    <message>
        <source>none</source>
        <translation>无</translation>
    </message>
    <message>
        <source>%1, %2: %3</source>
        <translation>%1，%2：%3</translation>
    </message>
    <message>
        <source>Data files</source>
        <translation>数据文件</translation>
    </message>
    <message>
        <source>An epoch is as long as all files together. Without weights it has every row once. With weights, rows of a small file repeat and rows of a large file take turns.</source>
        <translation>一轮的长度等于所有文件行数之和。不设权重时每行用一次；设了权重后，小文件的行会重复，大文件的行轮流使用。</translation>
    </message>
    <message>
        <source>File</source>
        <translation>文件</translation>
    </message>
    <message>
        <source>Weight</source>
        <translation>权重</translation>
    </message>
    <message>
        <source>Most rows</source>
        <translation>最多行数</translation>
    </message>
    <message>
        <source>In an epoch</source>
        <translation>每轮</translation>
    </message>
    <message>
        <source>Replay, %</source>
        <translation>回放（%）</translation>
    </message>
    <message>
        <source>Most rows limits which rows are used, not how often: by its weight a file can repeat them.</source>
        <translation>“最多行数”限制使用哪些行，而不是使用多少次：按权重，文件中的行可能重复。</translation>
    </message>
    <message>
        <source>To keep what the model knew, give a file of chats or general texts a replay share, such as 10%. After the run, Evaluate asks general questions and tells whether anything was forgotten.</source>
        <translation>要保留模型原有的能力，请给一个对话或通用文本文件设置回放占比，例如 10%。运行结束后，“评估”会提一些常识问题，告诉你模型是否有所遗忘。</translation>
    </message>
    <message>
        <source>Counted before long texts are split into examples.</source>
        <translation>在长文本拆分为样本之前计数。</translation>
    </message>
    <message>
        <source>Further files: %1. Set their weights in the spec.</source>
        <translation>其他文件：%1 个。请在运行配置中设置它们的权重。</translation>
    </message>
    <message>
        <source>about %1</source>
        <translation>约 %1</translation>
    </message>
</context>
<context>
    <name>StartBar</name>
    <message>
        <source>Start run</source>
        <translation>开始运行</translation>
    </message>
    <message>
        <source>Training is not set up</source>
        <translation>训练环境未安装</translation>
    </message>
    <message>
        <source>Choose a model</source>
        <translation>请选择模型</translation>
    </message>
    <message>
        <source>The model can&apos;t be used</source>
        <translation>模型无法使用</translation>
    </message>
    <message>
        <source>Choose a bigger model</source>
        <translation>选择更大的模型</translation>
    </message>
    <message>
        <source>Choose data</source>
        <translation>请选择数据</translation>
    </message>
    <message>
        <source>Choose the columns</source>
        <translation>请选择列</translation>
    </message>
    <message>
        <source>The data has no pairs</source>
        <translation>数据中没有偏好对</translation>
    </message>
    <message>
        <source>The data has no prompts</source>
        <translation>数据中没有提示词</translation>
    </message>
    <message>
        <source>The data can&apos;t be used</source>
        <translation>数据无法使用</translation>
    </message>
    <message>
        <source>Correct a setting</source>
        <translation>请改正一项设置</translation>
    </message>
    <message>
        <source>Nothing to learn: see plan</source>
        <translation>没有可学习的内容：见计划</translation>
    </message>
    <message>
        <source>Rows too long: see plan</source>
        <translation>数据行过长：见计划</translation>
    </message>
    <message>
        <source>Does not fit: see plan</source>
        <translation>放不下：见计划</translation>
    </message>
    <message>
        <source>No room for the model</source>
        <translation>没有空间存放模型</translation>
    </message>
    <message>
        <source>Downloading the model…</source>
        <translation>正在下载模型…</translation>
    </message>
    <message>
        <source>Starting…</source>
        <translation>正在启动…</translation>
    </message>
    <message>
        <source>Copy as…</source>
        <translation>复制为…</translation>
    </message>
    <message>
        <source>Copy as command</source>
        <translation>复制为命令</translation>
    </message>
    <message>
        <source>Copy spec as JSON</source>
        <translation>复制配置 JSON</translation>
    </message>
    <message>
        <source>Save spec…</source>
        <translation>保存配置…</translation>
    </message>
    <message>
        <source>Cancel the start</source>
        <translation>取消启动</translation>
    </message>
    <message>
        <source>Progress of the download</source>
        <translation>下载进度</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Check the labels</source>
        <translation>检查标签</translation>
    </message>
    <message>
        <source>Cancel the download</source>
        <translation>取消下载</translation>
    </message>
</context>
<context>
    <name>StartPicker</name>
    <message>
        <source>Rank %1 and its other settings come from the adapter.</source>
        <translation>秩 %1 及其他相关设置取自该适配器。</translation>
    </message>
    <message>
        <source>Start from</source>
        <translation>起点</translation>
    </message>
    <message>
        <source>The model as it is</source>
        <translation>原模型</translation>
    </message>
    <message>
        <source>Browse for an adapter folder</source>
        <translation>浏览适配器文件夹</translation>
    </message>
    <message>
        <source>Choose an adapter folder</source>
        <translation>选择适配器文件夹</translation>
    </message>
</context>
<context>
    <name>StopRunDialog</name>
    <message>
        <source>Stop the run?</source>
        <translation>停止这个运行？</translation>
    </message>
    <message>
        <source>%1 is at step %2. If you stop and save, you can resume it from there.</source>
        <translation>%1 进行到第 %2 步。停止并保存后，可以从那里继续。</translation>
    </message>
    <message>
        <source>%1 has not finished its first step, so there is nothing to save yet.</source>
        <translation>%1 还没有完成第一步，因此还没有可保存的内容。</translation>
    </message>
    <message>
        <source>If you discard, what came after the checkpoint of step %1 is lost.</source>
        <translation>如果放弃，第 %1 步检查点之后的内容会丢失。</translation>
    </message>
    <message>
        <source>If you discard, all steps are lost: there is no checkpoint yet.</source>
        <translation>如果放弃，所有步都会丢失：还没有检查点。</translation>
    </message>
    <message>
        <source>Stop and save</source>
        <translation>停止并保存</translation>
    </message>
    <message>
        <source>Stop the run</source>
        <translation>停止训练</translation>
    </message>
    <message>
        <source>Stop and discard</source>
        <translation>停止并放弃</translation>
    </message>
    <message>
        <source>Keep running</source>
        <translation>继续运行</translation>
    </message>
    <message>
        <source>%1 is waiting to save. If it still can’t when you stop, the steps after %2 are lost.</source>
        <translation>%1 正在等待保存。如果停止时仍无法保存，第 %2 步之后的训练将会丢失。</translation>
    </message>
</context>
<context>
    <name>TaskRow</name>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Cancel: %1</source>
        <translation>取消：%1</translation>
    </message>
    <message>
        <source>Canceling…</source>
        <translation>正在取消…</translation>
    </message>
    <message>
        <source>Starting…</source>
        <translation>正在启动…</translation>
    </message>
</context>
<context>
    <name>TasksCard</name>
    <message>
        <source>Practice tasks</source>
        <translation>练习任务</translation>
    </message>
    <message>
        <source>No data of your own? The program makes problems of a task and scores the answers.</source>
        <translation>没有自己的数据？程序会按任务出题，并给回答评分。</translation>
    </message>
    <message>
        <source>Easy</source>
        <translation>容易</translation>
    </message>
    <message>
        <source>Medium</source>
        <translation>中等</translation>
    </message>
    <message>
        <source>Hard</source>
        <translation>困难</translation>
    </message>
    <message>
        <source>Task</source>
        <translation>任务</translation>
    </message>
    <message>
        <source>Level</source>
        <translation>难度</translation>
    </message>
    <message>
        <source>Problems</source>
        <translation>题目数</translation>
    </message>
    <message>
        <source>Seed</source>
        <translation>随机种子</translation>
    </message>
    <message>
        <source>Make problems</source>
        <translation>出题</translation>
    </message>
    <message>
        <source>Install the packages for tasks and JSON schemas…</source>
        <translation>安装练习任务和 JSON 模式所需的软件包…</translation>
    </message>
    <message>
        <source>Making problems</source>
        <translation>正在出题</translation>
    </message>
    <message>
        <source>This downloads the Python packages reasoning-gym, which makes practice tasks, and jsonschema, which checks JSON, with the few packages that they need. They get a folder of their own.</source>
        <translation>将下载 Python 软件包 reasoning-gym（生成练习任务）和 jsonschema（检查 JSON），以及它们所需的少量软件包。这些软件包放在单独的文件夹中。</translation>
    </message>
    <message>
        <source>Install packages for tasks and JSON schemas?</source>
        <translation>安装练习任务和 JSON 模式所需的软件包？</translation>
    </message>
    <message>
        <source>What is installed already stays as it is.</source>
        <translation>已安装的内容保持不变。</translation>
    </message>
    <message>
        <source>Install packages</source>
        <translation>安装软件包</translation>
    </message>
    <message>
        <source>Installing reasoning-gym and jsonschema</source>
        <translation>正在安装 reasoning-gym 和 jsonschema</translation>
    </message>
</context>
<context>
    <name>TeacherCard</name>
    <message>
        <source>Bigger model</source>
        <translation>更大的模型</translation>
    </message>
    <message>
        <source>Choose a bigger model of the same family</source>
        <translation>选择同一系列的更大模型</translation>
    </message>
    <message>
        <source>Browse for the folder of a bigger model</source>
        <translation>浏览更大模型的文件夹</translation>
    </message>
    <message>
        <source>Get a bigger model</source>
        <translation>获取更大的模型</translation>
    </message>
    <message>
        <source>The data already holds what a bigger model found likely at each word, so none has to be loaded.</source>
        <translation>数据中已保存更大的模型在每个词处认为可能的内容，因此无需再加载更大的模型。</translation>
    </message>
    <message>
        <source>It must be of the same family as the base model, so that both have the same tokens.</source>
        <translation>它必须与基础模型属于同一系列，这样两者的词元才相同。</translation>
    </message>
    <message>
        <source>There is no bigger one of it on this computer yet. The Models page has some.</source>
        <translation>这台电脑上还没有同系列的更大模型。可以在“模型”页面获取。</translation>
    </message>
    <message>
        <source>Choose the folder of a bigger model</source>
        <translation>选择更大模型的文件夹</translation>
    </message>
</context>
<context>
    <name>TokenDialog</name>
    <message>
        <source>Enter an access token</source>
        <translation>输入访问令牌</translation>
    </message>
    <message>
        <source>Create a token with read access in the settings of your account on the hub. It is kept in the keyring of your system, in no file, and is only sent to the hub.</source>
        <translation>请在模型站的账号设置中创建一个只读令牌。令牌保存在系统的密钥环中，不写入任何文件，且只发送给模型站。</translation>
    </message>
    <message>
        <source>Access token</source>
        <translation>访问令牌</translation>
    </message>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Save token</source>
        <translation>保存令牌</translation>
    </message>
</context>
<context>
    <name>TokenField</name>
    <message>
        <source>Access token of the model hub</source>
        <translation>模型站的访问令牌</translation>
    </message>
    <message>
        <source>Enter a token…</source>
        <translation>输入令牌…</translation>
    </message>
    <message>
        <source>Remove</source>
        <translation>删除</translation>
    </message>
    <message>
        <source>Remove the access token</source>
        <translation>删除访问令牌</translation>
    </message>
    <message>
        <source>None. Public models need no token.</source>
        <translation>无。公开模型不需要令牌。</translation>
    </message>
</context>
<context>
    <name>TokenTable</name>
    <message>
        <source>Token</source>
        <translation>词元</translation>
    </message>
    <message>
        <source>ID</source>
        <translation>编号</translation>
    </message>
    <message>
        <source>Learned</source>
        <translation>学习</translation>
    </message>
    <message>
        <source>Control token</source>
        <translation>控制词元</translation>
    </message>
    <message>
        <source>Answer</source>
        <translation>回答</translation>
    </message>
</context>
<context>
    <name>TokenView</name>
    <message>
        <source>yes</source>
        <translation>是</translation>
    </message>
    <message>
        <source>better</source>
        <translation>较好</translation>
    </message>
    <message>
        <source>worse</source>
        <translation>较差</translation>
    </message>
    <message>
        <source>no</source>
        <translation>否</translation>
    </message>
    <message>
        <source>Row as the model sees it</source>
        <translation>模型看到的这一行</translation>
    </message>
    <message>
        <source>Tokens of the row</source>
        <translation>这一行的词元</translation>
    </message>
    <message>
        <source>Split here: the next example begins.</source>
        <translation>在此拆分：下一个样本开始。</translation>
    </message>
    <message>
        <source>The list shows all %1 tokens.</source>
        <translation>完整的 %1 个词元见列表。</translation>
    </message>
    <message>
        <source>A run skips this row. It is longer than the context by this many tokens: %1</source>
        <translation>训练时会跳过这一行。超出上下文长度的词元数：%1</translation>
    </message>
    <message>
        <source>Cut here: the context ends. Lost tokens: %1</source>
        <translation>在此截断：上下文到此为止。丢失的词元：%1</translation>
    </message>
</context>
<context>
    <name>TrashDialog</name>
    <message>
        <source>Trash</source>
        <translation>回收站</translation>
    </message>
    <message>
        <source>%1, deleted %2</source>
        <translation>%1，删除于 %2</translation>
    </message>
    <message numerus="yes">
        <source>and %n more</source>
        <translation>
            <numerusform>以及另外 %n 个</numerusform>
        </translation>
    </message>
    <message>
        <source>Delete for good</source>
        <translation>永久删除</translation>
    </message>
    <message>
        <source>Restore</source>
        <translation>恢复</translation>
    </message>
    <message>
        <source>Run</source>
        <translation>运行</translation>
    </message>
    <message>
        <source>Size</source>
        <translation>大小</translation>
    </message>
    <message>
        <source>Deleted runs and models</source>
        <translation>已删除的运行和模型</translation>
    </message>
    <message>
        <source>Deleted at</source>
        <translation>删除时间</translation>
    </message>
    <message>
        <source>Name</source>
        <translation>名称</translation>
    </message>
    <message>
        <source>Kind</source>
        <translation>类型</translation>
    </message>
    <message>
        <source>Delete for good…</source>
        <translation>永久删除…</translation>
    </message>
    <message>
        <source>Close</source>
        <translation>关闭</translation>
    </message>
    <message>
        <source>Model</source>
        <translation>模型</translation>
    </message>
    <message numerus="yes">
        <source>%n deleted item(s)</source>
        <translation>
            <numerusform>%n 个已删除的项目</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>Delete %n item(s) for good?</source>
        <translation>
            <numerusform>永久删除 %n 个项目？</numerusform>
        </translation>
    </message>
    <message>
        <source>All of their files are deleted. This can’t be undone.</source>
        <translation>它们的所有文件都会被删除，且无法撤销。</translation>
    </message>
    <message>
        <source>The trash is empty</source>
        <translation>回收站是空的</translation>
    </message>
</context>
<context>
    <name>TryStep</name>
    <message>
        <source>A small model learns 20 invented facts. The first steps show how long it takes here.</source>
        <translation>一个小模型会学习 20 条虚构的知识。跑完最初几步后会显示预计耗时。</translation>
    </message>
    <message>
        <source>Train the sample</source>
        <translation>训练示例</translation>
    </message>
    <message>
        <source>Watch it</source>
        <translation>查看</translation>
    </message>
    <message>
        <source>Progress</source>
        <translation>进度</translation>
    </message>
    <message>
        <source>Install the training environment first.</source>
        <translation>请先安装训练环境。</translation>
    </message>
    <message>
        <source>Training…</source>
        <translation>正在训练…</translation>
    </message>
    <message>
        <source>It works. The model learned the facts in %1.</source>
        <translation>可以使用。模型用 %1 学会了这些知识。</translation>
    </message>
    <message>
        <source>Training was stopped.</source>
        <translation>训练已停止。</translation>
    </message>
    <message>
        <source>Training failed. Its page shows why.</source>
        <translation>训练失败。原因见其页面。</translation>
    </message>
    <message>
        <source>Step %1 of %2</source>
        <translation>第 %1 步，共 %2 步</translation>
    </message>
    <message>
        <source>about %1 left</source>
        <translation>剩余约 %1</translation>
    </message>
</context>
<context>
    <name>TurnView</name>
    <message>
        <source>Edit</source>
        <translation>编辑</translation>
    </message>
    <message>
        <source>Regenerate</source>
        <translation>重新生成</translation>
    </message>
    <message>
        <source>%1 question %2</source>
        <translation>%1：问题 %2</translation>
    </message>
    <message>
        <source>Earlier answer</source>
        <translation>上一个回答</translation>
    </message>
    <message>
        <source>Later answer</source>
        <translation>下一个回答</translation>
    </message>
    <message>
        <source>%1 of %2</source>
        <translation>%1 / %2</translation>
    </message>
</context>
<context>
    <name>Unsaved</name>
    <message>
        <source>Drop your changes?</source>
        <translation>放弃修改？</translation>
    </message>
    <message>
        <source>Drop the changes</source>
        <translation>放弃修改</translation>
    </message>
    <message>
        <source>Your changes to the rows are not saved in a file yet.</source>
        <translation>你对数据行的修改还没有保存到文件。</translation>
    </message>
    <message>
        <source>Save as…</source>
        <translation>另存为…</translation>
    </message>
    <message>
        <source>Your changes to the rows are not saved in a file yet. Training reads the file.</source>
        <translation>对数据行的修改尚未保存到文件，而训练读取的是文件。</translation>
    </message>
    <message>
        <source>Save your changes first?</source>
        <translation>先保存修改吗？</translation>
    </message>
    <message>
        <source>Save and train</source>
        <translation>保存并训练</translation>
    </message>
    <message>
        <source>Train without the changes</source>
        <translation>不带修改直接训练</translation>
    </message>
    <message>
        <source>Your changes to the rows are not saved in a file yet. The library keeps the file.</source>
        <translation>对数据行的修改尚未保存到文件，而数据集列表记录的是文件。</translation>
    </message>
    <message>
        <source>Save and keep</source>
        <translation>保存并加入</translation>
    </message>
    <message>
        <source>Keep without the changes</source>
        <translation>不带修改直接加入</translation>
    </message>
</context>
<context>
    <name>VotePage</name>
    <message>
        <source>Both models answer each question. You see the answers in random order and learn whose they are after your vote.</source>
        <translation>两个模型都会回答每个问题。回答以随机顺序显示，投票后才揭晓出处。</translation>
    </message>
    <message>
        <source>Answers and result</source>
        <translation>回答与结果</translation>
    </message>
    <message>
        <source>Back to the chat</source>
        <translation>返回对话</translation>
    </message>
    <message>
        <source>Weights that are judged</source>
        <translation>要评判的权重</translation>
    </message>
    <message>
        <source>Compared with</source>
        <translation>比较对象</translation>
    </message>
    <message>
        <source>against</source>
        <translation>对比</translation>
    </message>
    <message>
        <source>A is better</source>
        <translation>A 更好</translation>
    </message>
    <message>
        <source>B is better</source>
        <translation>B 更好</translation>
    </message>
    <message>
        <source>Both the same</source>
        <translation>两个一样</translation>
    </message>
    <message>
        <source>Both bad</source>
        <translation>都不好</translation>
    </message>
    <message>
        <source>Your votes</source>
        <translation>你的投票</translation>
    </message>
    <message>
        <source>Save votes as preference pairs…</source>
        <translation>将投票保存为偏好数据对…</translation>
    </message>
    <message>
        <source>Train on these votes</source>
        <translation>用这些投票训练</translation>
    </message>
    <message>
        <source>Question</source>
        <translation>问题</translation>
    </message>
    <message>
        <source>Ask both models a question.</source>
        <translation>向两个模型提一个问题。</translation>
    </message>
    <message>
        <source>Next held-out question</source>
        <translation>下一个留出问题</translation>
    </message>
    <message>
        <source>Ask both</source>
        <translation>向两者提问</translation>
    </message>
    <message>
        <source>Stop</source>
        <translation>停止</translation>
    </message>
    <message>
        <source>Blind vote: %1</source>
        <translation>盲测投票：%1</translation>
    </message>
    <message>
        <source>Before this run</source>
        <translation>本次运行之前</translation>
    </message>
    <message>
        <source>The model was unloaded before it had answered. Ask again.</source>
        <translation>模型在回答之前已被卸载。请重新提问。</translation>
    </message>
    <message>
        <source>Both models are answering. Their answers appear together.</source>
        <translation>两个模型正在回答。回答会同时显示。</translation>
    </message>
    <message>
        <source>Which answer to “%1” is better?</source>
        <translation>对“%1”的回答，哪个更好？</translation>
    </message>
    <message>
        <source>Both answers are there.</source>
        <translation>两个回答都已显示。</translation>
    </message>
    <message>
        <source>Stopped. There is nothing to vote on.</source>
        <translation>已停止，没有可投票的内容。</translation>
    </message>
    <message>
        <source>Saved. A was %1, B was %2.</source>
        <translation>已保存。A 是%1，B 是%2。</translation>
    </message>
    <message>
        <source>No votes yet.</source>
        <translation>还没有投票。</translation>
    </message>
    <message>
        <source>Save votes as preference pairs</source>
        <translation>将投票保存为偏好数据对</translation>
    </message>
    <message numerus="yes">
        <source>%n preference pair(s) saved</source>
        <translation>
            <numerusform>已保存 %n 条偏好数据对</numerusform>
        </translation>
    </message>
    <message>
        <source>Train on so few votes?</source>
        <translation>用这么少的投票训练？</translation>
    </message>
    <message>
        <source>Train on them</source>
        <translation>仍然训练</translation>
    </message>
</context>
<context>
    <name>VotesCard</name>
    <message>
        <source>Blind votes</source>
        <translation>盲测投票</translation>
    </message>
    <message>
        <source>Vote</source>
        <translation>投票</translation>
    </message>
    <message>
        <source>Read two answers without knowing whose they are, and say which one is better.</source>
        <translation>阅读两个不知出处的回答，并说出哪个更好。</translation>
    </message>
</context>
<context>
    <name>WayBar</name>
    <message>
        <source>Teach by example</source>
        <translation>示例学习</translation>
    </message>
    <message>
        <source>Prefer this over that</source>
        <translation>偏好学习</translation>
    </message>
    <message>
        <source>Good and bad answers</source>
        <translation>好坏回答</translation>
    </message>
    <message>
        <source>Score answers</source>
        <translation>给回答打分</translation>
    </message>
    <message>
        <source>Check the steps of an answer</source>
        <translation>检查回答的步骤</translation>
    </message>
    <message>
        <source>Sort texts into classes</source>
        <translation>文本分类</translation>
    </message>
    <message>
        <source>Full fine-tune</source>
        <translation>全量微调</translation>
    </message>
    <message>
        <source>Reward what is right</source>
        <translation>奖励正确回答</translation>
    </message>
    <message>
        <source>Read documents</source>
        <translation>阅读文档</translation>
    </message>
    <message>
        <source>Learn from a bigger model</source>
        <translation>向更大的模型学习</translation>
    </message>
    <message>
        <source>The model learns to answer like the examples. The data needs chats, prompts with responses, or text.</source>
        <translation>模型学习像示例那样回答。数据可以是对话、提示词和回答，或纯文本。</translation>
    </message>
    <message>
        <source>The model learns which of two answers is better. Each prompt needs a better and a worse answer.</source>
        <translation>模型学习两个回答中哪个更好。每个提示词都需要一个较好和一个较差的回答。</translation>
    </message>
    <message>
        <source>The model learns to write more like the good answers and less like the bad ones. Each answer needs a label, such as a thumb up or down.</source>
        <translation>模型学习写得更像好的回答，更不像差的回答。每个回答都需要标签，例如赞或踩。</translation>
    </message>
    <message>
        <source>The model tries several answers to each prompt and learns from the best. The data needs prompts with right answers.</source>
        <translation>模型为每条提示词尝试多个回答，并从最好的回答中学习。数据需要包含提示词和正确答案。</translation>
    </message>
    <message>
        <source>The model learns to give answers a score and writes none. Each prompt needs a better and a worse answer.</source>
        <translation>模型学习给回答打分，不写回答。每个提示词需要一个较好和一个较差的回答。</translation>
    </message>
    <message>
        <source>The model learns which steps of a solution are right, and writes none. Each solution needs its steps, and a label for each step.</source>
        <translation>模型学习判断解答的哪些步骤正确，自己不写回答。每个解答需要列出步骤，每个步骤需要一个标签。</translation>
    </message>
    <message>
        <source>The model learns which label a text has, or which number, and writes none. Each text needs a label.</source>
        <translation>模型学习文本属于哪个标签，或对应哪个数值，不写文本。每条文本都需要一个标签。</translation>
    </message>
    <message>
        <source>The whole model learns to answer like the examples, not only a small adapter. This needs several times the memory and disk space.</source>
        <translation>整个模型都学习像示例那样回答，而不只是一个小适配器。所需的显存和磁盘空间是原来的数倍。</translation>
    </message>
    <message>
        <source>The model learns word by word what a bigger one would say. The data needs chats, or prompts with responses.</source>
        <translation>模型逐词学习更大的模型会怎么说。数据需要对话，或带回答的提示词。</translation>
    </message>
    <message>
        <source>The model learns the words and facts of texts by reading them whole. The data needs text files, Markdown, web pages, PDF, Word or a folder of them. A second file with chats can be mixed in, so that it keeps what it knew.</source>
        <translation>模型通过完整阅读文本来学习其中的词汇和知识。数据可以是文本文件、Markdown、网页、PDF、Word，或包含这些文件的文件夹。还可以混入一个对话文件，让模型保留原有能力。</translation>
    </message>
    <message>
        <source>How to teach</source>
        <translation>训练方式</translation>
    </message>
</context>
<context>
    <name>WeightsBox</name>
    <message>
        <source>Finished adapter</source>
        <translation>最终适配器</translation>
    </message>
    <message>
        <source>Newest checkpoint</source>
        <translation>最新检查点</translation>
    </message>
    <message>
        <source>%1, step %2</source>
        <translation>%1，第 %2 步</translation>
    </message>
    <message>
        <source>Step %1</source>
        <translation>第 %1 步</translation>
    </message>
</context>
<context>
    <name>WhichRows</name>
    <message>
        <source>Use rows that nobody has reviewed?</source>
        <translation>要使用尚未审核的行吗？</translation>
    </message>
    <message>
        <source>A model wrote %1 of the %2 rows, and nobody has reviewed them. They may be wrong.</source>
        <translation>共 %2 行，其中 %1 行由模型写成，且无人审核，可能有误。</translation>
    </message>
    <message>
        <source>A model wrote %1 of the first %2 rows, and nobody has reviewed them. They may be wrong.</source>
        <translation>前 %2 行中有 %1 行由模型写成，且无人审核，可能有误。</translation>
    </message>
    <message>
        <source>All rows</source>
        <translation>全部行</translation>
    </message>
    <message>
        <source>Only reviewed rows</source>
        <translation>仅已审核的行</translation>
    </message>
</context>
<context>
    <name>WordsCard</name>
    <message>
        <source>New words</source>
        <translation>新词</translation>
    </message>
    <message>
        <source>Words of a field often fall into many pieces. As one token each they are read faster, and learned where they occur often. Write them into the setting New words, or look for them in the data.</source>
        <translation>专业词汇常被拆成很多片段。让每个词成为一个词元，读得更快，常见的词也更容易学会。可以把它们写进设置“新词”，也可以在数据中查找。</translation>
    </message>
    <message>
        <source>Suggest new words</source>
        <translation>推荐新词</translation>
    </message>
    <message numerus="yes">
        <source>Add the first %Ln word(s)</source>
        <translation>
            <numerusform>添加前 %Ln 个词</numerusform>
        </translation>
    </message>
    <message>
        <source>Reading the data…</source>
        <translation>正在读取数据…</translation>
    </message>
    <message>
        <source>%1 (%2 pieces, %3 times)</source>
        <translation>%1（%2 个片段，%3 次）</translation>
    </message>
    <message>
        <source>No word is both frequent and written in many pieces.</source>
        <translation>没有既常见又被拆成很多片段的词。</translation>
    </message>
</context>
<context>
    <name>Wsl</name>
    <message>
        <source>WSL did not respond in time. Training in Windows does not need it.</source>
        <translation>WSL 没有及时响应。直接在 Windows 中训练不需要它。</translation>
    </message>
    <message>
        <source>Unknown</source>
        <translation>未知</translation>
    </message>
    <message>
        <source>Ready</source>
        <translation>就绪</translation>
    </message>
    <message>
        <source>Distributions: %1</source>
        <translation>发行版：%1</translation>
    </message>
    <message>
        <source>No distribution</source>
        <translation>没有发行版</translation>
    </message>
    <message>
        <source>WSL is enabled, but no Linux distribution is installed.</source>
        <translation>WSL 已启用，但没有安装 Linux 发行版。</translation>
    </message>
    <message>
        <source>The distribution uses WSL version 1, which can&apos;t use the GPU.</source>
        <translation>发行版使用的是 WSL 1，不能使用 GPU。</translation>
    </message>
    <message>
        <source>Setup needs administrator rights and a restart.</source>
        <translation>安装需要管理员权限并重启电脑。</translation>
    </message>
    <message>
        <source>No reason was given.</source>
        <translation>没有给出原因。</translation>
    </message>
    <message>
        <source>Training on several GPUs needs Linux. WSL provides it.</source>
        <translation>多 GPU 训练需要 Linux，可通过 WSL 实现。</translation>
    </message>
    <message>
        <source>Needed only if Triton does not work in Windows.</source>
        <translation>仅当 Triton 无法在 Windows 中使用时才需要。</translation>
    </message>
    <message>
        <source>Version 1</source>
        <translation>版本 1</translation>
    </message>
    <message>
        <source>Not installed</source>
        <translation>未安装</translation>
    </message>
    <message>
        <source>Does not work</source>
        <translation>无法使用</translation>
    </message>
    <message>
        <source>Windows Subsystem for Linux</source>
        <translation>适用于 Linux 的 Windows 子系统</translation>
    </message>
</context>
<context>
    <name>WslCard</name>
    <message>
        <source>Use WSL…</source>
        <translation>使用 WSL…</translation>
    </message>
</context>
<context>
    <name>_EndRow</name>
    <message>
        <source>Show in folder</source>
        <translation>在文件夹中显示</translation>
    </message>
    <message>
        <source>Show in folder: %1</source>
        <translation>在文件夹中显示：%1</translation>
    </message>
    <message>
        <source>Dismiss</source>
        <translation>关闭提示</translation>
    </message>
    <message>
        <source>Dismiss: %1</source>
        <translation>关闭提示：%1</translation>
    </message>
</context>
<context>
    <name>_OperationRow</name>
    <message>
        <source>Cancel</source>
        <translation>取消</translation>
    </message>
    <message>
        <source>Unload</source>
        <translation>卸载</translation>
    </message>
    <message>
        <source>%1: %2</source>
        <translation>%1：%2</translation>
    </message>
</context>
<context>
    <name>_Progress</name>
    <message>
        <source>Progress of the export</source>
        <translation>导出进度</translation>
    </message>
    <message>
        <source>You can close this sheet. The export continues, and Activity shows how far it is.</source>
        <translation>可以关闭此窗口，导出会继续，进度可在“活动”中查看。</translation>
    </message>
    <message>
        <source>Canceling…</source>
        <translation>正在取消…</translation>
    </message>
</context>
<context>
    <name>_Row</name>
    <message>
        <source>Open</source>
        <translation>打开</translation>
    </message>
    <message>
        <source>Open %1</source>
        <translation>打开 %1</translation>
    </message>
</context>
<context>
    <name>_RunEndRow</name>
    <message>
        <source>%1: %2</source>
        <translation>%1：%2</translation>
    </message>
    <message>
        <source>Open</source>
        <translation>打开</translation>
    </message>
    <message>
        <source>Open %1</source>
        <translation>打开 %1</translation>
    </message>
    <message>
        <source>Dismiss</source>
        <translation>关闭提示</translation>
    </message>
    <message>
        <source>Dismiss: %1</source>
        <translation>关闭提示：%1</translation>
    </message>
</context>
</TS>
