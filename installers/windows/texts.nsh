; The setup's own texts in English and Simplified Chinese; the pages' other texts come with NSIS.

!macro Text NAME ENGLISH CHINESE
  LangString ${NAME} ${LANG_ENGLISH} "${ENGLISH}"
  LangString ${NAME} ${LANG_SIMPCHINESE} "${CHINESE}"
!macroend

!insertmacro Text TextComment "Fine-tune language models on your own GPU" "在自己的显卡上微调语言模型"
!insertmacro Text TextFolder \
  "Tunesmith's program files go into this folder. It must be on a fixed drive of this computer; any name will do." \
  "Tunesmith 的程序文件将安装到此文件夹。它必须位于本机的固定磁盘上，名称不限。"
!insertmacro Text TextFinish \
  "Tunesmith is installed.$\r$\n$\r$\nIts first start gets the libraries of its window, which needs the internet." \
  "Tunesmith 已安装。$\r$\n$\r$\n首次启动时会下载界面所需的库，需要连接互联网。"
!insertmacro Text TextUnpacking "Unpacking the program" "正在解压程序"
!insertmacro Text TextChecking "Checking every unpacked file" "正在校验解压出的每个文件"
!insertmacro Text TextRegistering "Writing shortcuts" "正在创建快捷方式"
!insertmacro Text TextOldWindows "Tunesmith needs Windows 10 or newer." "Tunesmith 需要 Windows 10 或更新版本。"
!insertmacro Text TextRunning "Another setup of Tunesmith is running." "另一个 Tunesmith 安装程序正在运行。"
!insertmacro Text TextNoPython \
  "This setup holds no Python, and no Python 3.11, 3.12 or 3.13 from python.org was found. Install one of them first." \
  "此安装程序不含 Python，也未找到来自 python.org 的 Python 3.11、3.12 或 3.13。请先安装其中之一。"
!insertmacro Text TextNetwork \
  "This folder is on the network. Programs start slowly or not at all from there: choose a folder on a fixed drive." \
  "此文件夹位于网络上，程序从那里启动很慢或根本无法启动。请选择固定磁盘上的文件夹。"
!insertmacro Text TextRemovable \
  "This folder is on a removable drive, which may be gone at the next start: choose a folder on a fixed drive." \
  "此文件夹位于可移动磁盘上，下次启动时可能已不存在。请选择固定磁盘上的文件夹。"
!insertmacro Text TextNoDrive \
  "This drive is not a fixed drive of this computer: choose another folder." \
  "该驱动器不是本机的固定磁盘。请选择其他文件夹。"
!insertmacro Text TextOneDrive \
  "This folder is inside OneDrive, which would upload the program and lock its files: choose a folder outside." \
  "此文件夹位于 OneDrive 中，OneDrive 会上传程序并锁定其文件。请选择 OneDrive 以外的文件夹。"
!insertmacro Text TextWholeDrive \
  "Choose a folder such as C:\Tunesmith, not a whole drive." \
  "请选择一个文件夹，例如 C:\Tunesmith，而不是整个驱动器。"
!insertmacro Text TextTooLong \
  "The name of this folder is too long for Windows: choose one of at most ${MAX_FOLDER_LENGTH} characters." \
  "此文件夹的路径对 Windows 来说太长。请选择不超过 ${MAX_FOLDER_LENGTH} 个字符的路径。"
!insertmacro Text TextNoFolder \
  "This is no folder that programs can be installed into." \
  "这不是可以安装程序的文件夹。"
!insertmacro Text TextNotEmpty \
  "This folder holds other files: choose an empty folder, or a new one inside it." \
  "此文件夹中已有其他文件。请选择空文件夹，或在其中新建一个。"
!insertmacro Text TextNotWritable \
  "This folder can't be written by your account: choose another one." \
  "您的帐户无法写入此文件夹。请选择其他文件夹。"
!insertmacro Text TextNotUnpacked \
  "Not all files could be written. Free some space, or allow Tunesmith in your antivirus program, then try again." \
  "部分文件无法写入。请释放磁盘空间，或在杀毒软件中允许 Tunesmith，然后重试。"
!insertmacro Text TextDamaged \
  "An unpacked file is not as it was packed. Nothing was installed. Download the setup again." \
  "解压出的文件与打包时不一致，未安装任何内容。请重新下载安装程序。"
!insertmacro Text TextInUse \
  "Tunesmith is running. Close its window and wait for the end of its runs, then try again." \
  "Tunesmith 正在运行。请关闭其窗口并等待任务结束，然后重试。"
!insertmacro Text TextAskData \
  "Remove your runs with their adapters, your models and settings as well?$\r$\n$\r$\nThe program, its environments and caches are removed in any case." \
  "是否同时删除您的运行及其适配器、模型和设置？$\r$\n$\r$\n无论如何，程序及其环境和缓存都会被删除。"
!insertmacro Text TextRemovingData "Removing environments and caches" "正在删除环境和缓存"
!insertmacro Text TextDataLeft \
  "Not all data could be removed. The program is removed nevertheless." \
  "部分数据无法删除，但程序仍会被删除。"
!insertmacro Text TextNothingHere \
  "There is no Tunesmith in this folder." \
  "此文件夹中没有 Tunesmith。"
